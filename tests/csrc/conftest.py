"""Builds the C++ tests and the drivers they run on, once for all processes of a parallel run."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CSRC = HERE.parents[1] / "csrc"


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
