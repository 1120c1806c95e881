"""Models that Inductor compiles for the CPU with kernelpack as Triton agree with eager; packages run in programs without kernelpack."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.inductor_models import MODELS
from tests.inductor import package

pytestmark = pytest.mark.slow


def python(tmp_path: Path, *arguments: str) -> None:
    environment = {**os.environ, "KERNELPACK_LOAD_LIBRARY": "0", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    environment["KERNELPACK_CACHE_DIR"] = str(tmp_path / "kernels")
    subprocess.run([sys.executable, *arguments], env=environment, check=True)


@pytest.mark.parametrize("name", [*MODELS, "train"])
def test_a_model_agrees_with_eager(tmp_path: Path, name: str) -> None:
    python(tmp_path, "-m", "tests.inductor.agree", name)


def test_a_package_with_a_kernel_of_the_users_runs_from_cpp(tmp_path: Path) -> None:
    python(tmp_path, "-m", "tests.inductor.package", str(tmp_path))
    torch_folder = Path(torch.__file__).parent
    program, libraries = tmp_path / "program", torch_folder / "lib"
    subprocess.run(
        [
            "g++", "-std=c++20", str(Path(package.__file__).with_name("run_package.cpp")), "-o", str(program), f"-I{torch_folder}/include",
            f"-I{torch_folder}/include/torch/csrc/api/include", f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-Wl,--no-as-needed",
            "-ltorch", "-ltorch_cpu", "-lc10",
        ],
        check=True,
    )  # fmt: skip
    done = subprocess.run([str(program), str(tmp_path / "model.pt2")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2.5 2.5 2.5\n"
