"""Compiles what emits a formula to a function of NumPy arrays, for this machine, and measures its errors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from kernelpack.backends.cpu.emit.elementwise import Lowering
from kernelpack.backends.cpu.facts.features import level_of, runnable
from kernelpack.llvm import codegen
from kernelpack.llvm.text import Emitter, Val, vector_type

Array = np.ndarray[Any, Any]
DTYPES = {"float": np.float32, "double": np.float64, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}
BYTES = {name: np.dtype(kind).itemsize for name, kind in DTYPES.items()}


def compiled(
    emit: Callable[[Lowering, list[Val]], Val], kinds: Sequence[str], result: str, width: int = 8
) -> Callable[..., Array]:
    """Returns a function of arrays with elements of the LLVM types `kinds`, whose length is a multiple of `width`.

    `emit` writes the formula for vectors of that width and returns its result. i1 is stored as i8.
    """
    (*_, target) = [target for target in runnable() if not target.features]  # the lowest level
    level = level_of(target)
    features = frozenset({"avx512"} if level.vector_bits == 512 else ())
    lowering = Lowering(Emitter(features), fuse=False, bf16_hardware=False)
    em = lowering.em
    counter = Val("i64", "%at")
    values = []
    for number, kind in enumerate(kinds):
        address = em.op("ptr", f"getelementptr {kind}, ptr %p{number}, {counter}")
        values.append(em.load(vector_type(kind, width), address, BYTES[kind]))
    made = emit(lowering, values)
    if result == "i1":
        made, result = em.cast("zext", made, vector_type("i8", width)), "i8"
    assert made.type == vector_type(result, width), made
    em.store(made, em.op("ptr", f"getelementptr {result}, ptr %out, {counter}"), BYTES[result])
    pointers = ", ".join([*(f"ptr %p{number}" for number in range(len(kinds))), "ptr %out"])
    lines = [
        f"define void @formula({pointers}, i64 %count) {{",
        "entry:",
        *em.allocas,
        "  br label %loop",
        "loop:",
        f"  %at = phi i64 [0, %entry], [%next, %{'loop' if em.block == 'entry' else em.block}]",
        *em.lines,
        f"  %next = add i64 %at, {width}",
        "  %more = icmp slt i64 %next, %count",
        "  br i1 %more, label %loop, label %done",
        "done:",
        "  ret void",
        "}",
        *sorted(em.declarations),
    ]
    image = codegen.emit_object("\n".join(lines), level.machine)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), llvm.Target.from_default_triple().create_target_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(image))
    engine.finalize_object()
    address = engine.get_function_address("formula")
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(kinds) + 1), ctypes.c_int64)(address)

    def call(*arrays: Array) -> Array:
        assert engine is not None
        given = [np.ascontiguousarray(array, DTYPES[kind]) for array, kind in zip(arrays, kinds, strict=True)]
        count = len(given[0])
        assert count % width == 0
        out = np.empty(count, DTYPES[result])
        function(*(array.ctypes.data for array in given), out.ctypes.data, count)
        return out

    return call


def ulps(got: Array, right: Array) -> Array:
    """Returns how far float32 results are from float64 ones, in units that a float32 has there. A result that overflows counts as
    2^128; a NaN in one alone is an infinite error."""
    limit = 2.0**128
    with np.errstate(invalid="ignore"):
        exponent = np.frexp(np.where(np.isfinite(right), right, limit))[1] - 1
        unit = np.ldexp(1.0, np.clip(exponent, -126, 127) - 23)
        error = np.abs(np.clip(got.astype(np.float64), -limit, limit) - np.clip(right, -limit, limit)) / unit
    error = np.where(np.isnan(got) | np.isnan(right), np.inf, error)
    return np.where(np.isnan(got) & np.isnan(right), 0.0, error)


def sample(count: int = 1 << 14) -> Array:
    """Returns float32 numbers of all magnitudes and signs, those at the edges first."""
    edges = [0.0, 1.0, 1.1754944e-38, 1e-45, 1.1754942e-38, 3.4028235e38, np.inf, np.nan, 0.5, 2.0, 0.625, 0.925, 4.0, 2.0**-24]
    edges += [88.72283, 88.72284, 103.97, 104.0, 127.99999, 128.0, 149.5, 150.0, 160.0, 0.70710677, 1.4142135, 2.7182817]
    both = np.array([sign * edge for edge in edges for sign in (1, -1)], np.float32)
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, count - len(both) - count // 4, dtype=np.uint32).view(np.float32)
    near = rng.normal(size=count // 4).astype(np.float32) * 4
    return np.concatenate([both, bits, near])
