"""The libraries by which AOTInductor's programs launch a CPU kernel: loaded where there is no kernelpack, with AOTInductor's arguments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.errors import BuildError
from kernelpack.runtime.ahead_of_time import ASTSource
from kernelpack.target import GPUTarget

HERE = GPUTarget("cpu", "", 32)


@kp.jit
def axpy(x, BLOCK: tl.constexpr, out, count, slope, offset):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(x + at, mask=at < count) * slope + offset.to(tl.float32)
    tl.device_assert(count > 0, "there are no elements")
    tl.store(out + at, y, mask=at < count)


SIGNATURE = {"x": "*fp32", "BLOCK": "constexpr", "out": "*fp32", "count": "i32", "slope": "fp32", "offset": "fp64"}

PROGRAM = """
import ctypes, sys
kernel, launcher = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])
x, out = (ctypes.c_float * 100)(*range(100)), (ctypes.c_float * 100)()
count, slope, offset = ctypes.c_int64(99), ctypes.c_float(2), ctypes.c_float(0.5)
where = ctypes.addressof
args = (ctypes.c_void_p * 6)(where(x), None, where(out), where(count), where(slope), where(offset))
launcher.run_from_nativert(2, 1, 1, 1, args, ctypes.cast(kernel.axpy, ctypes.c_void_p))
assert [*out] == [*(2 * i + 0.5 for i in range(99)), 0], [*out]
assert not {"torch", "kernelpack"} & set(sys.modules)
"""


def test_a_program_without_kernelpack_launches(tmp_path: Path) -> None:
    kernel = kp.compile(ASTSource(axpy, SIGNATURE, {"BLOCK": 64}), HERE, {"debug": True})
    assert "so" not in kernel.asm
    files = []
    for name in ("so", "launcher.so"):
        files.append(tmp_path / name)
        files[-1].write_bytes(kernel.asm.get(name))
    assert kernel.metadata.name == "axpy"
    subprocess.run([sys.executable, "-c", PROGRAM, *map(str, files)], check=True, cwd=tmp_path)


def test_parameters_that_are_not_passed_are_refused() -> None:
    kernel = kp.compile(ASTSource(axpy, SIGNATURE | {"offset": "fp16"}, {"BLOCK": 64}), HERE)
    with pytest.raises(BuildError, match="AOTInductor passes no parameter offset of type f16"):
        kernel.asm["launcher.so"]


def test_kernels_for_gpus_have_no_such_libraries() -> None:
    kernel = kp.compile(ASTSource(axpy, SIGNATURE, {"BLOCK": 64}), "cuda:sm_80+ptx")
    assert kernel.asm.get("launcher.so") is None
    with pytest.raises(KeyError, match="so: there is ttir, ttgir, llir, ptx"):
        kernel.asm["so"]
