"""Loaders and launchers in C++, without torch: each test of kernels_test.cpp, on a CUDA driver that needs no GPU."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CSRC = HERE.parents[1] / "csrc"
NAMES = re.findall(r"TEST\((\w+)\),", (HERE / "kernels_test.cpp").read_text())

SETTINGS = {
    "cuda_errors_name_result_and_cure": [{"MOCK_FAIL": "cuLaunchKernelEx=700"}],
    "cuda_driver_that_finds_no_gpu": [{"MOCK_FAIL": "cuInit=100"}],
    "cuda_driver_that_is_too_old": [{"KERNELPACK_LIBCUDA": "old.so"}],
    "cuda_driver_that_is_missing": [{"KERNELPACK_LIBCUDA": "absent.so"}, {"KERNELPACK_LIBCUDA": "kernels_test"}],
    "cuda_targets_fit_the_device": [{"MOCK_CAPABILITY": "90"}, {"MOCK_CAPABILITY": "86"}],
}


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder with the test program and two drivers, made once for all processes of a parallel run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "csrc"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "kernels_test").is_file():
            flags = ["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{CSRC}"]
            mock = str(HERE / "mock_cuda.cpp")
            for command in (
                [*flags, "-shared", "-fPIC", mock, "-o", "mock.so"],
                [*flags, "-shared", "-fPIC", "-DMOCK_OLD", mock, "-o", "old.so"],
                [*flags, "-fsanitize=undefined", "-fno-sanitize-recover=all", str(HERE / "kernels_test.cpp"),
                 *map(str, sorted((CSRC / "kernels").glob("*.cpp"))), "-o", "kernels_test", "-ldl", "-lpthread"],
            ):  # fmt: skip
                subprocess.run(command, cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_cpp(program: Path, name: str) -> None:
    for setting in SETTINGS.get(name, [{}]):
        environment = {"KERNELPACK_LIBCUDA": "mock.so", **setting}
        if environment["KERNELPACK_LIBCUDA"] != "absent.so":
            environment["KERNELPACK_LIBCUDA"] = str(program / environment["KERNELPACK_LIBCUDA"])
        done = subprocess.run(
            [program / "kernels_test", name], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{setting}: {done.stderr}"
