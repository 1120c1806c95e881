"""Loaders and launchers in C++, without torch: each test of *_test.cpp, on a CUDA driver that needs no GPU."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NAMES = [
    name for file in sorted(HERE.glob("*_test.cpp")) for name in re.findall(r"^TEST\((\w+)\)", file.read_text(), re.MULTILINE)
]

SETTINGS = {
    "cuda_errors_name_result_and_cure": [{"MOCK_FAIL": "cuLaunchKernelEx=700"}],
    "cuda_tensor_maps_are_encoded_at_each_launch": [{"MOCK_MAPS": "1"}],
    "cuda_empty_tensors_read_as_padding": [{"MOCK_MAPS": "1"}],
    "cuda_driver_refuses_a_tensor_map": [{"MOCK_FAIL": "cuTensorMapEncodeTiled=77"}],
    "cuda_driver_that_finds_no_gpu": [{"MOCK_FAIL": "cuInit=100"}],
    "cuda_driver_that_is_too_old": [{"KERNELPACK_LIBCUDA": "old.so"}],
    "cuda_driver_that_is_missing": [{"KERNELPACK_LIBCUDA": "absent.so"}, {"KERNELPACK_LIBCUDA": "kernels_test"}],
    "cuda_targets_fit_the_device": [{"MOCK_CAPABILITY": "90"}, {"MOCK_CAPABILITY": "86"}],
}


THREADED = [name for name in NAMES if "thread" in name]
"""What ThreadSanitizer looks at; all tests run under AddressSanitizer and UndefinedBehaviorSanitizer."""


@pytest.mark.parametrize("name", THREADED)
def test_threads(program: Path, name: str) -> None:
    environment = {"KERNELPACK_LIBCUDA": str(program / "mock.so"), "TSAN_OPTIONS": "halt_on_error=1"}
    done = subprocess.run(
        [program / "threads_test", name], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_cpp(program: Path, name: str) -> None:
    for setting in SETTINGS.get(name, [{}]):
        # what a launcher loads stays until the process ends: that is no leak
        environment = {"KERNELPACK_LIBCUDA": "mock.so", "ASAN_OPTIONS": "detect_leaks=0", **setting}
        if environment["KERNELPACK_LIBCUDA"] != "absent.so":
            environment["KERNELPACK_LIBCUDA"] = str(program / environment["KERNELPACK_LIBCUDA"])
        done = subprocess.run(
            [program / "kernels_test", name], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{setting}: {done.stderr}"
