"""Compiles kernels for the GPU and runs them on the emulator, beside the ttir interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelpack.backends.base import Fact, Lowered, Options
from kernelpack.backends.cuda import CUDABackend
from kernelpack.backends.cuda.ttgir_to_llir import ttgir_to_llir
from kernelpack.backends.cuda.ttir_to_ttgir import ttir_to_ttgir
from kernelpack.compiler import optimise_ttir
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.frontend.jit import JITFunction
from kernelpack.ir.core import Operation, entry_function
from kernelpack.ir.formats import decode, encode, round_to
from kernelpack.ir.interpret import launch
from kernelpack.ir.text import parse_module
from kernelpack.ir.types import BF16
from kernelpack.ir.verify import verify
from kernelpack.target import Target
from tests.backends.cuda.emulator import Kernel

_TYPES = {
    "bool": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
}


@dataclass
class BF16Array:
    """An array of bfloat16 as its bits; NumPy has no such type."""

    bits: np.ndarray

    @staticmethod
    def of(values: np.ndarray) -> BF16Array:
        return BF16Array(encode(round_to(values, BF16), BF16).reshape(values.shape))

    def values(self) -> np.ndarray:
        return decode(self.bits, BF16).astype(np.float32)


def ttir_of(fn: JITFunction, arguments: dict[str, Any], facts: bool = True) -> tuple[Operation, list[Any]]:
    """Returns the optimised module for some arguments, and the run-time ones in order."""
    signature, constexprs, values = {}, {}, []
    known: list[Fact] = []
    for param in fn.params:
        value = arguments.get(param.name, param.default if param.has_default else None)
        # integers equal to 1 (unit strides) are compile-time values, as in a launch
        if param.is_constexpr or value is None or isinstance(value, (bool, str)) or (facts and _is_one(value)):
            constexprs[param.name] = value
            continue
        if isinstance(value, BF16Array):
            signature[param.name] = "*bf16"
        elif isinstance(value, np.ndarray):
            signature[param.name] = "*" + _TYPES[str(value.dtype)]
        elif isinstance(value, float):
            signature[param.name] = "fp32"
        else:
            signature[param.name] = "i64" if abs(int(value)) >> 31 else "i32"
        aligned = not isinstance(value, float) and (not isinstance(value, int) or value % 16 == 0)
        if facts and aligned:
            known.append(Fact(param.name, "tt.divisibility", 16))
        values.append(value)
    module = ast_to_ttir(fn, signature, constexprs, known)
    optimise_ttir(module)
    return module, values


def _is_one(value: Any) -> bool:
    return isinstance(value, int) and value == 1


def lower(module: Operation, target: str = "cuda:sm_80", **options: Any) -> tuple[Operation, str, Lowered]:
    """Returns the verified ttgir of a module and its LLVM IR."""
    lowered = Lowered(CUDABackend().resolve_target(Target.parse(target)), Options(**options), "kernel")
    ttgir = ttir_to_ttgir(module, lowered)
    verify(ttgir)
    again = parse_module(str(ttgir))
    verify(again)
    return ttgir, ttgir_to_llir(ttgir, lowered), lowered


def run(fn: JITFunction, grid: Sequence[int], *, facts: bool = True, target: str = "cuda:sm_80", **arguments: Any) -> Operation:
    """Runs a kernel on the emulator and changes the arrays in place. Returns its ttgir."""
    options = {name: arguments.pop(name) for name in ("num_warps", "num_stages") if name in arguments}
    module, values = ttir_of(fn, arguments, facts)
    ttgir, llir, lowered = lower(module, target, **options)
    kernel = Kernel(llir, lowered.metadata["threads"])
    kernel(grid, *[value.bits if isinstance(value, BF16Array) else value for value in values])
    return ttgir


def check(
    fn: JITFunction,
    grid: Sequence[int],
    *,
    tolerance: float = 0.0,
    facts: bool = True,
    target: str = "cuda:sm_80",
    **arguments: Any,
) -> Operation:
    """Runs a kernel on the emulator and by the interpreter; all arrays must come out alike. Returns the ttgir.

    `tolerance` is relative to the largest magnitude of an array.
    """
    options = {name: arguments.pop(name) for name in ("num_warps", "num_stages") if name in arguments}
    module, values = ttir_of(fn, arguments, facts)
    mine = [_copy(value) for value in values]
    reference = [_copy(value) for value in values]
    launch(module, grid, [value.bits if isinstance(value, BF16Array) else value for value in reference])
    ttgir, llir, lowered = lower(module, target, **options)
    kernel = Kernel(llir, lowered.metadata["threads"])
    kernel(grid, *[value.bits if isinstance(value, BF16Array) else value for value in mine])
    for name, got, wanted in zip((a.name for a in entry_function(module).body.arguments), mine, reference, strict=True):
        if isinstance(got, (BF16Array, np.ndarray)):
            _compare(name, got, wanted, tolerance)
    return ttgir


def _copy(value: Any) -> Any:
    if isinstance(value, BF16Array):
        return BF16Array(value.bits.copy())
    return value.copy() if isinstance(value, np.ndarray) else value


def _compare(name: str, got: Any, wanted: Any, tolerance: float) -> None:
    if isinstance(got, BF16Array):
        got, wanted = got.values(), wanted.values()
    if got.dtype.kind != "f" or not tolerance:
        np.testing.assert_array_equal(got, wanted, err_msg=name)
        return
    finite = np.isfinite(wanted.astype(np.float64))
    scale = np.abs(wanted[finite]).max() if finite.any() else 1.0
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * float(scale), err_msg=name)
