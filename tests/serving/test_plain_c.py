"""A program in C launches compiled kernels, built by the lines that stand in it: no torch, no Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernelpack.opgen.build import build

EXAMPLE = Path(__file__).parents[2] / "serving_examples" / "plain_c"


@pytest.mark.slow  # test_cmake.py builds and runs the same program
def test_plain_c_launches_a_kernel_with_its_own_threads(tmp_path: Path) -> None:
    built = build(
        [EXAMPLE / "saxpy.py"],
        namespace="demo",
        targets=["cpu:x86-64-v3", "cuda:sm_80", "cuda:sm_90a"],
        out=tmp_path / "demo",
        jobs=2,
    )
    lines = (EXAMPLE / "main.c").read_text().splitlines()
    command = next(line.removeprefix("//   ") for line in lines if line.startswith("//   gcc")).replace(
        "main.c", str(EXAMPLE / "main.c")
    )
    subprocess.run(f"{command} -Wall -Wextra -Werror", shell=True, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main", "cpu"], capture_output=True, text=True, env={"OMP_NUM_THREADS": "2"})
    assert done.stdout == "y = 2.5 x + y of 1000000 elements is right (cpu)\n", done
    needed = subprocess.run(["ldd", built.library], capture_output=True, text=True, check=True).stdout
    assert "torch" not in needed
    mock = EXAMPLE.parents[1] / "tests" / "csrc" / "mock_cuda.cpp"
    subprocess.run(["g++", "-std=c++17", "-shared", "-fPIC", mock, "-o", "libcuda.so.1"], cwd=tmp_path, check=True)
    for environment, said in (
        ({"KERNELPACK_LIBCUDA": "/absent/libcuda.so.1"}, "/absent/libcuda.so.1: cannot open"),
        ({}, "y[1] is 1\n"),  # every call of the driver succeeds; this one computes nothing
        ({"MOCK_CAPABILITY": "80"}, "y[1] is 1\n"),
        ({"MOCK_CAPABILITY": "75"}, "compute capability 7.5"),
        ({"MOCK_FAIL": "cuLaunchKernelEx=719"}, "cuLaunchKernelEx"),
    ):
        driver = {"KERNELPACK_LIBCUDA": str(tmp_path / "libcuda.so.1"), **environment}
        without = subprocess.run([tmp_path / "main", "cuda"], capture_output=True, text=True, env=driver)
        assert without.returncode == 1
        assert said in without.stderr
