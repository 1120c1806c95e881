"""Builds the C++ tests and the drivers they run on, once for all processes of a parallel run."""

from __future__ import annotations

import fcntl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelpack.backends.installed import backend_of
from kernelpack.compiled import Parameter
from kernelpack.facts import Fact
from kernelpack.opgen.emit.c_entries import c_files
from kernelpack.opgen.emit.cpp_library import LibraryPlan, fill
from kernelpack.options import Options
from kernelpack.pack.embed import image_kernels, images_source
from kernelpack.pack.format import KernelPack
from kernelpack.target import Target

HERE = Path(__file__).parent
CSRC = HERE.parents[1] / "csrc"
FLAGS = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{CSRC}", f"-I{CSRC / 'kernels'}", "-I."]
SHARED = ["-shared", "-fPIC", str(HERE / "mock_cuda.cpp")]


def fake_library() -> dict[str, str]:
    """Returns what a build writes for C programs, for a kernel whose image only the fake driver loads."""
    target = Target.parse("cuda:sm_90a")
    backend = backend_of(target)
    pack = KernelPack(
        ("k",), "k", target, "cubin", "fake_k", (Parameter("x", "!tt.ptr<f32>"), Parameter("n", "i32")), {}, Options(),
        (Fact("x", "tt.divisibility", 16),), {"num_warps": 4}, {}, b"image",
    )  # fmt: skip
    plan = LibraryPlan("fake", "0", "kernelpack build", (), (backend,), {"cuda": (target,)}, {pack.entry: pack})
    head = fill(
        "kernels.h.in",
        version="0",
        namespace="fake",
        includes='#include "cuda.h"',
        arrays="extern kernelpack::Kernel cuda[];",
        backends="",
    )
    rows = f'#include "kernels.h"\n{image_kernels("fake", "cuda", [pack])}'
    images = images_source("fake", "cuda", [pack.image], "kernelpack::cuda_launcher")
    return {**c_files(plan), "kernels.h": head, "kernels_cuda.cpp": rows, "images_cuda.cpp": images}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder of all processes of a parallel run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "csrc"
    folder.mkdir(exist_ok=True)
    return folder


def made_once(folder: Path, name: str, files: dict[str, str], *commands: list[str]) -> None:
    """Writes files into the folder and runs commands there, two at once, unless a process has."""
    with open(folder / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / f"{name}.done").is_file():
            for file, text in files.items():
                (folder / file).write_text(text)
            with ThreadPoolExecutor(2) as pool:
                for done in pool.map(
                    lambda command: subprocess.run(command, cwd=folder, capture_output=True, text=True), commands
                ):
                    assert done.returncode == 0, done.stderr
            (folder / f"{name}.done").touch()


@pytest.fixture(scope="session")
def driver(folder: Path) -> Path:
    """A CUDA driver that needs no GPU."""
    made_once(folder, "driver", {}, [*FLAGS, "-O1", *SHARED, "-o", "mock.so"])
    return folder / "mock.so"


@pytest.fixture(scope="session")
def program(folder: Path, driver: Path) -> Path:
    """The folder with the test program, under two sanitizers, and two drivers."""
    sources = [*map(str, sorted(HERE.glob("*_test.cpp"))), "kernels_c.cpp", "kernels_cuda.cpp", "images_cuda.cpp"]
    sources += map(str, sorted((CSRC / "kernels").glob("*.cpp")))
    sanitized = ["-g1", "-fno-sanitize-recover=all", *sources, "-l:libzstd.a", "-ldl", "-lpthread"]
    made_once(
        folder,
        "program",
        fake_library(),
        [*FLAGS, "-O1", "-DMOCK_OLD", *SHARED, "-o", "old.so"],
        [*FLAGS, "-O0", "-fsanitize=address,undefined", *sanitized, "-o", "kernels_test"],
        [*FLAGS, "-O1", "-fsanitize=thread", *sanitized, "-o", "threads_test"],  # -O1 has more warnings
    )
    return folder
