"""How the AMD backend compiles: its stages after ttir, and what it refuses."""

from __future__ import annotations

from kernelpack.backends.amd.assemble import link, llir_to_amdgcn, relocatable
from kernelpack.backends.amd.context import AmdContext as AmdContext
from kernelpack.backends.amd.lowering import LOWERINGS, ttgir_to_llir
from kernelpack.backends.amd.lowering.math import SINGLE
from kernelpack.backends.amd.machine import MAX_THREADS, machine_of
from kernelpack.backends.amd.ttir_to_ttgir import TTGIR
from kernelpack.backends.base import Stage
from kernelpack.backends.gpu.lowering.control_flow import STRUCTURE
from kernelpack.errors import OutOfResources, UnsupportedError
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute
from kernelpack.ir.types import F64, FloatType, IntegerType, PointerType, Type, element_of
from kernelpack.options import Options
from kernelpack.target import Target

_INTEGERS = (1, 8, 16, 32, 64)
_WHY = {
    "tt.call": "functions are inlined",
    "tt.dot": "matrix products are not lowered yet",
    "tt.print": "kernels have nobody to print to",
    "tt.assert": "kernels have nobody to tell that an assertion failed",
    "tt.elementwise_inline_asm": "it is PTX, which NVIDIA's GPUs alone execute",
    "tt.extern_elementwise": "libdevice is NVIDIA's",
    "arith.remf": "LLVM's code for it is not exact",
    "math.sin": "LLVM's code for it is accurate for small arguments alone",
    "math.cos": "LLVM's code for it is accurate for small arguments alone",
}
"""Why operations are refused that users may expect."""


def stages(target: Target, options: Options) -> dict[str, Stage]:
    """Returns the stages after ttir for a target. Raises an error for options that it cannot have."""
    _check(options, machine_of(target).lanes)
    return {"ttgir": TTGIR, "llir": ttgir_to_llir, "amdgcn": llir_to_amdgcn, "object": relocatable, "hsaco": link}


def supports(op: Operation) -> str | None:
    """Returns why an operation cannot be lowered, or None."""
    if op.name in _WHY:
        return _WHY[op.name]
    if op.name not in LOWERINGS and op.name not in STRUCTURE:
        return "the AMD backend has no lowering for it"
    if op.name == "tt.fp_to_fp" and op.operands and attribute(op, "rounding") == "rtz":
        return "rounding to zero is not lowered"
    kinds = [element_of(value.type) for value in (*op.operands, *op.results)]
    if op.name in SINGLE and F64 in kinds:
        return "it is lowered for floats of 16 and 32 bits alone"
    return next((reason for reason in map(_unsupported_type, kinds) if reason is not None), None)


def _check(options: Options, lanes: int) -> None:
    if options.num_ctas != 1:
        raise UnsupportedError(f"num_ctas={options.num_ctas}: AMD's GPUs have no clusters of blocks", cure="use num_ctas=1")
    most = MAX_THREADS // lanes
    if options.num_warps not in (1, 2, 4, 8, 16, 32):
        raise UnsupportedError(f"num_warps={options.num_warps} is not a power of two from 1 to 32", cure="use 4 or 8")
    if options.num_warps > most:
        raise OutOfResources(
            f"the kernel needs {options.num_warps * lanes} threads, a block has at most {MAX_THREADS}",
            cure=f"use num_warps={most} at most: a warp has {lanes} lanes",
        )
    if options.threads_per_warp not in (None, lanes):
        raise UnsupportedError(
            f"threads_per_warp={options.threads_per_warp}: a warp of this GPU has {lanes} lanes",
            cure="leave threads_per_warp out, and choose num_warps",
        )


def _unsupported_type(kind: Type) -> str | None:
    if isinstance(kind, PointerType):
        return _unsupported_type(kind.pointee)
    if isinstance(kind, FloatType) and kind.width == 8:
        return f"8-bit floats such as {kind} are not lowered yet"
    if isinstance(kind, IntegerType) and kind.width not in _INTEGERS:
        return f"integers have 1, 8, 16, 32 or 64 bits, not {kind.width}"
    return None
