"""kernelpack._C launches through the C++ launchers, and gives Python their errors."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernelpack import _C
from kernelpack.errors import LaunchError


def loaded(**changes: object) -> _C.LoadedKernel:
    """Returns a kernel for a GPU; nothing of it is loaded before a launch."""
    given = {
        "backend": "cuda", "device_type": "cuda", "name": "k", "entry": "k", "target": "cuda:sm_90a", "image": b"image",
        "types": ["!tt.ptr<f32>", "i32", "f32", "i1"], "num_warps": 4, "num_ctas": 1, "shared_memory": 0, "program_ns": 0.0,
    }  # fmt: skip
    return _C.LoadedKernel(**{**given, **changes})


def test_arguments_that_do_not_fit_are_refused() -> None:
    x = torch.ones(3)
    with pytest.raises(LaunchError, match="k takes 4 run-time arguments, not 2"):
        loaded().launch(0, 0, (1, 1, 1), (x, 3))
    with pytest.raises(TypeError):
        loaded().launch(0, 0, (1, 1, 1), (x, "three", 1.0, True))
    with pytest.raises((TypeError, ValueError)):
        loaded().launch(0, 0, (1, 1, 1), (x, 3, "one", True))
    with pytest.raises(TypeError):
        loaded().launch(0, 0, (1, 1), (x, 3, 1.0, True))
    with pytest.raises(LaunchError, match="parameter of type f8E5M2 cannot be passed"):
        loaded(types=["f8E5M2"])


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({}, "launched 3 x 4 x 5, 128 threads"),
        ({"MOCK_FAIL": "cuLaunchKernelEx=700"}, "LaunchError: cuLaunchKernelEx failed with CUDA_ERROR_ILLEGAL_ADDRESS (700,"),
        ({"KERNELPACK_LIBCUDA": "absent.so"}, "LaunchError: the CUDA driver cannot be opened: absent.so"),
    ],
)
def test_cuda_kernels_are_launched_by_the_driver(driver: Path, setting: dict[str, str], expected: str) -> None:
    code = """
        import ctypes, os, torch
        from tests.csrc.test_module import loaded
        from kernelpack.errors import LaunchError
        try:
            loaded().launch(0, 0, (3, 4, 5), (torch.ones(3), -1, 0.5, True))
        except LaunchError as error:
            print("LaunchError:", error)
        else:
            mock = ctypes.CDLL(os.environ["KERNELPACK_LIBCUDA"])
            mock.mock_last_launch.restype = ctypes.POINTER(ctypes.c_uint)
            last = mock.mock_last_launch()
            print(f"launched {last[0]} x {last[1]} x {last[2]}, {last[3]} threads")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "KERNELPACK_LIBCUDA": str(driver), "KERNELPACK_LOAD_LIBRARY": "0", **setting},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(expected)


def launcher_of(given: list[object], is_constexpr: bool, tests: list[object]) -> Callable[[object], object]:
    """Returns what launches a kernel of one argument, and has Python note each value that no call of the same kind gave before."""

    class Python:
        def prepare(self, values: list[object], options: dict[str, object]) -> tuple[str, None, list[int]]:
            given.extend(values)
            return "loaded", None, []

        def launch(self, *call: object) -> None:
            pass

    missing = object()
    launcher = _C.JitLauncher(
        python=Python(), names=["n"], defaults=[missing], no_default=missing, constexprs=[is_constexpr], options=frozenset(),
        tests=tests, hooks=[],
    )  # fmt: skip
    launch: Callable[[object], object] = launcher.binder()((1,))
    return launch


def test_keys_tell_numbers_apart_by_what_backends_test() -> None:
    kinds: list[object] = []
    tests = [("equal", 1, bool), ("divisible", 16, bool), ("equal", 7, bool), ("other", 3, lambda number: number % 3 == 0)]
    launch = launcher_of(kinds, is_constexpr=False, tests=tests)
    for number in (1, 2, 5, -2, 3, 9, 16, 32, 7, -(2**31), 48, 96, 1, 2**31 - 1, 2**31, 2**32, 2**70):
        launch(number)
    # by those that are equal to 1 and 7, divisible by 16 and 3, and wider than 32 bits; wider than 64 are Python's
    assert kinds == [1, 2, 3, 16, 7, 48, 2**31]


def test_keys_hold_compile_time_integers_as_they_are() -> None:
    kinds: list[object] = []
    launch = launcher_of(kinds, is_constexpr=True, tests=[])
    values = [0, 1, -1, True, 1.0, False, 2**30 - 1, 2**30, -(2**30), 2**62, -(2**62), 2**70]
    for value in [*values, *reversed(values)]:
        launch(value)
    assert list(map(repr, kinds)) == list(map(repr, values))
