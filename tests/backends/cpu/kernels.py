"""Builds, compiles and runs small ttir kernels, on the CPU backend and in the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelpack.backends.cpu.device.open import open_object
from kernelpack.backends.cpu.facts.features import runnable
from kernelpack.compiled import CompiledKernel
from kernelpack.compiler.stages import compile_ttir
from kernelpack.ir.core import Block, Builder, Operation, Region, Value, module
from kernelpack.ir.formats import carrier, encode
from kernelpack.ir.types import FunctionType, PointerType, TensorType, Type
from kernelpack.ir.verify import verify
from kernelpack.options import Options
from kernelpack.runtime.loaded import LoadedKernel
from kernelpack.target import Target

LEVELS = ("x86-64-v3", "x86-64-v4", "x86-64-v4+avx512bf16", "x86-64-v4+amx")


def loaded_object(kernel: CompiledKernel) -> LoadedKernel:
    return LoadedKernel(kernel, open_object(kernel))


def levels_here() -> list[str]:
    """Returns the levels that this machine can run, the lowest first."""
    here = {str(target).removeprefix("cpu:") for target in runnable()}
    return [level for level in LEVELS if level in here]


def compile_module(kernel: Operation, level: str, options: Options | None = None) -> CompiledKernel:
    verify(kernel)
    return compile_ttir(kernel, Target.parse(f"cpu:{level}"), options or Options())


def run(kernel: Operation, level: str, grid: Sequence[int], *arguments: Any) -> None:
    """Runs a module's kernel; arrays are passed by their address."""
    values = [Address(value.ctypes.data) if isinstance(value, np.ndarray) else value for value in arguments]
    padded = (*grid, 1, 1)[:3]
    loaded_object(compile_module(kernel, level)).launch(padded, values)


class Address(int):
    def data_ptr(self) -> int:
        return int(self)


def memory_of(values: np.ndarray[Any, Any], kind: Type) -> np.ndarray[Any, Any]:
    """Returns carrier values as they lie in memory."""
    return np.ascontiguousarray(encode(values, kind))


def elementwise_kernel(name: str, operands: list[Type], result: Type, count: int, **attributes: Any) -> Operation:
    """Returns a kernel that loads `count` elements an operand, applies an operation and stores the result."""
    pointers = [PointerType(kind) for kind in (*operands, result)]
    block = Block(pointers, [f"p{index}" for index in range(len(pointers))])
    builder = Builder(block)
    offsets = builder.value("tt.make_range", (), {"start": 0, "end": count})

    def address(pointer: Value) -> Value:
        splat = builder.value("tt.splat", [pointer], None, TensorType((count,), pointer.type))
        return builder.value("tt.addptr", [splat, offsets])

    values = [builder.value("tt.load", [address(pointer)]) for pointer in block.arguments[:-1]]
    made = builder.value(name, values, attributes, TensorType((count,), result))
    builder.create("tt.store", [address(block.arguments[-1]), made])
    builder.create("tt.return")
    kind = FunctionType(tuple(pointers), ())
    function = Operation(
        "tt.func", (), (), {"sym_name": "kernel", "function_type": kind, "sym_visibility": "public"}, [Region([block])]
    )
    return module([function])


def empty(count: int, kind: Type) -> np.ndarray[Any, Any]:
    """Returns memory for results, filled with a pattern that nobody computes."""
    return np.full(count, 0x5A, dtype=memory_of(np.zeros(1, carrier(kind)), kind).dtype)
