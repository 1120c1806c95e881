"""One kernel a type that applies every elementwise operation to the same inputs, and what the ttir interpreter gives for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelpack.compiled import CompiledKernel
from kernelpack.compiler.stages import compile_ttir
from kernelpack.ir.core import Block, Builder, Operation, Region, Value, module
from kernelpack.ir.dialects.arith import FLOAT_PREDICATES, INT_PREDICATES
from kernelpack.ir.formats import carrier, decode, encode, min_normal, round_to
from kernelpack.ir.interpret import evaluate
from kernelpack.ir.types import (
    BF16,
    F8E4M3B15,
    F8E4M3FN,
    F8E5M2,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    FloatType,
    FunctionType,
    IntegerType,
    PointerType,
    TensorType,
    Type,
    bit_width,
    is_float,
)
from kernelpack.options import Options
from kernelpack.target import Target

COUNT = 1024
INTS: tuple[IntegerType, ...] = (I8, I16, I32, I64)
FLOATS: tuple[FloatType, ...] = (F16, BF16, F32, F64)
SMALL_FLOATS: tuple[FloatType, ...] = (F8E4M3FN, F8E5M2, F8E4M3B15)
KINDS: tuple[Type, ...] = (*INTS, *FLOATS, *SMALL_FLOATS)

_INT_BINARY = (
    "addi", "subi", "muli", "andi", "ori", "xori", "maxsi", "maxui", "minsi", "minui", "divsi", "divui", "remsi", "remui",
)  # fmt: skip
_FLOAT_BINARY = ("addf", "subf", "mulf", "remf", "maximumf", "maxnumf", "minimumf", "minnumf")
# errors in units in the last place of float32; the results of narrower types are rounded once more
_ELEMENTARY = {
    "exp": 3, "exp2": 3, "log": 2, "log2": 2, "log1p": 2, "sin": 2, "cos": 2, "tanh": 2, "erf": 3, "rsqrt": 2,
}  # fmt: skip
_SPANS = {"exp": 80, "exp2": 120, "tanh": 10, "erf": 4.5, "sin": 1e4, "cos": 1e4}


@dataclass(frozen=True)
class Row:
    """An operation on inputs (by number), and how far its result may be off in units in the last place."""

    name: str
    inputs: tuple[int, ...]
    result: Type
    attributes: dict[str, Any] = field(default_factory=dict)
    ulp: int = 0


def rows_of(kind: Type) -> Iterator[Row]:
    """Yields the operations for inputs 0, 1, 2 of a type, 3 of booleans, and 4 in the range of elementary functions."""
    if isinstance(kind, IntegerType):
        for name in _INT_BINARY:
            yield Row(f"arith.{name}", (0, 1), kind)
        for predicate in INT_PREDICATES:
            yield Row("arith.cmpi", (0, 1), I1, {"predicate": predicate})
        yield Row("math.absi", (0,), kind)
        for other in INTS:
            if other.width > kind.width:
                yield Row("arith.extsi", (0,), other)
                yield Row("arith.extui", (0,), other)
            elif other.width < kind.width:
                yield Row("arith.trunci", (0,), other)
        for wide in FLOATS:
            yield Row("arith.sitofp", (0,), wide)
            yield Row("arith.uitofp", (0,), wide)
        if kind in (I32, I64):
            yield Row("tt.mulhiui", (0, 1), kind)
    elif kind in SMALL_FLOATS:
        for wide in (*FLOATS, *SMALL_FLOATS):
            if wide != kind:
                yield Row("tt.fp_to_fp", (0,), wide)
        yield Row("math.absf", (0,), kind)
        yield Row("tt.bitcast", (0,), I8)
    else:
        assert isinstance(kind, FloatType)
        for small in SMALL_FLOATS:
            for rounding in ("rtne", "rtz"):
                yield Row("tt.fp_to_fp", (0,), small, {"rounding": rounding})
        for name in _FLOAT_BINARY:
            yield Row(f"arith.{name}", (0, 1), kind)
        yield Row("arith.divf", (0, 1), kind, ulp={F32: 2, F64: 0}.get(kind, 1))
        for name in ("arith.negf", "math.absf", "math.floor", "math.ceil", "math.sqrt", "tt.precise_sqrt"):
            yield Row(name, (0,), kind)
        yield Row("tt.precise_divf", (0, 1), kind)
        yield Row("math.fma", (0, 1, 2), kind)
        yield Row("tt.clampf", (0, 1, 2), kind, {"propagate_nan": "all"})
        for predicate in FLOAT_PREDICATES:
            yield Row("arith.cmpf", (0, 1), I1, {"predicate": predicate})
        for integer in INTS:
            yield Row("arith.fptosi", (0,), integer)
            yield Row("arith.fptoui", (0,), integer)
        for float_ in FLOATS:
            if float_.width > kind.width:
                yield Row("arith.extf", (0,), float_)
            elif float_.width < kind.width:
                yield Row("arith.truncf", (0,), float_)
                yield Row("tt.fp_to_fp", (0,), float_, {"rounding": "rtz"})
        yield Row("arith.bitcast", (0,), {16: I16, 32: I32, 64: I64}[kind.width])
        for name, ulp in _ELEMENTARY.items():
            yield Row(f"math.{name}", (4,), kind, ulp=ulp if kind in (F32, F64) else 1)
    yield Row("arith.select", (3, 0, 1), kind)


class Elementwise:
    """The kernel of a type: pointers to five inputs, then to one output a row."""

    def __init__(self, kind: Type) -> None:
        self.kind = kind
        self.rows = list(rows_of(kind))
        self.kinds = [kind, kind, kind, I1, kind]
        self.inputs = [_values(of, number) for number, of in enumerate(self.kinds[:4])]
        self.inputs.append(_arguments(kind))

    def module(self) -> Operation:
        pointers = [PointerType(of) for of in (*self.kinds, *(row.result for row in self.rows))]
        block = Block(pointers, [f"p{index}" for index in range(len(pointers))])
        build = Builder(block)
        offsets = build.value("tt.make_range", (), {"start": 0, "end": COUNT})

        def address(pointer: Value) -> Value:
            splat = build.value("tt.splat", [pointer], None, TensorType((COUNT,), pointer.type))
            return build.value("tt.addptr", [splat, offsets])

        values = [build.value("tt.load", [address(pointer)]) for pointer in block.arguments[:5]]
        for row, pointer in zip(self.rows, block.arguments[5:], strict=True):
            operands = [values[number] for number in row.inputs]
            made = build.value(row.name, operands, row.attributes, TensorType((COUNT,), row.result))
            build.create("tt.store", [address(pointer), made])
        build.create("tt.return")
        attributes = {"sym_name": "kernel", "function_type": FunctionType(tuple(pointers), ()), "sym_visibility": "public"}
        return module([Operation("tt.func", (), (), attributes, [Region([block])])])

    def compile(self, target: str) -> CompiledKernel:
        # what is fused is not rounded in between
        return compile_ttir(self.module(), Target.parse(target), Options(enable_fp_fusion=False))

    def memory(self) -> list[np.ndarray[Any, Any]]:
        """Returns the kernel's arguments as they lie in memory; outputs hold a pattern that nobody computes."""
        given = [np.ascontiguousarray(encode(values, of)) for values, of in zip(self.inputs, self.kinds, strict=True)]
        types = [encode(np.zeros(1, carrier(row.result)), row.result).dtype for row in self.rows]
        return given + [np.full(COUNT, 0x5A, of) for of in types]

    def problems(self, memory: list[np.ndarray[Any, Any]]) -> list[str]:
        """Returns what the kernel computed wrongly, a line for each operation."""
        found = []
        for row, raw in zip(self.rows, memory[5:], strict=True):
            operands = [self.inputs[number] for number in row.inputs]
            block = Block([self.kinds[number] for number in row.inputs])
            op = Builder(block).create(row.name, block.arguments, row.attributes, [row.result])
            expected, actual = evaluate(op, operands)[0], decode(raw, row.result)
            if row.result in SMALL_FLOATS:  # a format without NaN holds something else
                expected = decode(encode(expected, row.result), row.result)
            wrong = differs(actual, expected, row)
            if row.name in ("arith.divsi", "arith.divui", "arith.remsi", "arith.remui"):
                wrong &= operands[1] != 0
            if wrong.any():
                at = int(np.argmax(wrong))
                shown = [values[at] for values in operands]
                found.append(
                    f"{row.name} {row.attributes} {shown} -> {actual[at]!r}, not {expected[at]!r} ({wrong.sum()} wrong)"
                )
        return found


def differs(actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], row: Row) -> np.ndarray[Any, Any]:
    """Returns where results of an operation are further apart than its row allows."""
    if not isinstance(row.result, FloatType):
        return actual != expected
    same = np.isnan(actual) & np.isnan(expected)
    if not row.ulp:
        zero = row.name in ("arith.maxnumf", "arith.minnumf", "tt.clampf")  # of equal zeros either may come
        return ~same & ((actual != expected) | ((np.signbit(actual) != np.signbit(expected)) & ~(zero & (actual == 0))))
    # the approximate instructions take subnormal results for zero
    tiny = min_normal(row.result)
    same |= (np.abs(actual) <= tiny) & (np.abs(expected) <= tiny)
    lowest, width = -(1 << bit_width(row.result) - 1), {16: np.int16, 32: np.int32, 64: np.int64}[bit_width(row.result)]
    lines = []
    for values in (actual, expected):
        bits = np.ascontiguousarray(encode(values, row.result)).view(width).astype(np.int64)
        lines.append(np.where(bits < 0, lowest - bits, bits))
    with np.errstate(over="ignore"):
        return ~same & (np.abs(lines[0] - lines[1]) > row.ulp)


def _values(kind: Type, seed: int) -> np.ndarray[Any, Any]:
    """Returns edge values and random ones, in the carrier of a type."""
    random = np.random.default_rng(seed)
    if kind == I1:
        return random.integers(0, 2, COUNT).astype(bool)
    if isinstance(kind, IntegerType):
        low, high = -(1 << kind.width - 1), (1 << kind.width - 1) - 1
        edges = [0, 1, -1, 2, -2, 7, low, low + 1, high, high - 1]
        picks = [edges[index] for index in random.integers(0, len(edges), COUNT // 2)]
        return np.array([*picks, *random.integers(low, high, COUNT // 2)], dtype=carrier(kind))
    edges = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 2.0**-126, 3e38, 65504.0, 0.5, -2.5, 1.5, 464.0, 2.0**-10]
    chosen = [edges[index] for index in random.integers(0, len(edges), COUNT // 2)]
    spread = random.standard_normal(COUNT // 2) * 10.0 ** random.integers(-6, 6, COUNT // 2)
    assert is_float(kind)
    with np.errstate(all="ignore"):
        values = round_to(np.array([*chosen, *spread]), kind)
        return decode(encode(values, kind), kind) if kind in SMALL_FLOATS else values


def _arguments(kind: Type) -> np.ndarray[Any, Any]:
    """Returns arguments of elementary functions: a part in the range of each, and special values."""
    if not isinstance(kind, FloatType):
        return _values(kind, 4)
    random = np.random.default_rng(4)
    spans = [_SPANS.get(name, 1e5) for name in _ELEMENTARY]
    parts = [random.uniform(-span, span, COUNT // len(spans)) for span in spans]
    values = np.concatenate([*parts, [0.0, 1.0, np.inf, -np.inf, np.nan]])
    return round_to(np.resize(values, COUNT), kind)
