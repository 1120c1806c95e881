"""Every elementwise operation in every type it takes, on edge values, against an oracle that shares no code with the interpreter.

Integers are checked with Python's, floats with exact fractions or torch, so that a wrong rounding or wrap cannot hide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from kernelpack.ir.core import Block, Builder, Operation
from kernelpack.ir.dialect import Trait
from kernelpack.ir.dialects.arith import ARITH, FLOAT_PREDICATES, INT_PREDICATES
from kernelpack.ir.dialects.math import MATH
from kernelpack.ir.dialects.tt import TT
from kernelpack.ir.formats import carrier, decode, encode, max_finite
from kernelpack.ir.interpret import evaluate
from kernelpack.ir.interpret.elementwise import ELEMENTWISE
from kernelpack.ir.types import (
    BF16,
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
    IntegerType,
    PointerType,
    Type,
)

INTS = (I1, I8, I16, I32, I64)
FLOATS = (F16, BF16, F32, F64)
FP8 = (F8E4M3FN, F8E5M2)


def make(name: str, operands: list[Type], result: Type, **attributes: object) -> Operation:
    block = Block(operands)
    return Builder(block).create(name, block.arguments, attributes, [result])


def run(op: Operation, *operands: list[Any]) -> list[Any]:
    """Evaluates on columns of Python numbers and returns Python numbers."""
    arrays = [np.array(column, dtype=carrier(value.type)) for column, value in zip(operands, op.operands, strict=True)]
    out = evaluate(op, arrays)[0]
    assert out.dtype == carrier(op.result.type)
    again = evaluate(op, [values[0] for values in arrays])[0]  # scalars mean the same
    assert same(again.item(), out[0].item())
    return list(out.tolist())


def same(a: float, b: float) -> bool:
    """Equal, with -0 unlike 0 and NaN like NaN."""
    return (a != a and b != b) or (a == b and math.copysign(1, a) == math.copysign(1, b))


# ---- integers ----


def int_values(kind: IntegerType) -> list[int]:
    if kind == I1:
        return [0, 1]
    low, high = -(1 << kind.width - 1), (1 << kind.width - 1) - 1
    return sorted(
        {
            low,
            low + 1,
            -100 % high - high,
            -3,
            -2,
            -1,
            0,
            1,
            2,
            3,
            7,
            kind.width - 1,
            kind.width,
            100,
            high // 3,
            high - 1,
            high,
        }
    )


def as_signed(value: int, kind: IntegerType) -> int:
    value &= (1 << kind.width) - 1
    return value - (1 << kind.width) if value >> kind.width - 1 else value


def as_unsigned(value: int, kind: IntegerType) -> int:
    return value & (1 << kind.width) - 1


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INT_ORACLES: dict[str, tuple[Callable[..., int], bool]] = {
    # name: (function of Python integers, whether it sees them signed)
    "arith.addi": (lambda w, a, b: a + b, True),
    "arith.subi": (lambda w, a, b: a - b, True),
    "arith.muli": (lambda w, a, b: a * b, True),
    "arith.andi": (lambda w, a, b: a & b, True),
    "arith.ori": (lambda w, a, b: a | b, True),
    "arith.xori": (lambda w, a, b: a ^ b, True),
    "arith.maxsi": (lambda w, a, b: max(a, b), True),
    "arith.minsi": (lambda w, a, b: min(a, b), True),
    "arith.maxui": (lambda w, a, b: max(a, b), False),
    "arith.minui": (lambda w, a, b: min(a, b), False),
    "arith.divsi": (lambda w, a, b: truncated(a, b) if b else 0, True),
    "arith.remsi": (lambda w, a, b: a - b * truncated(a, b) if b else a, True),
    "arith.divui": (lambda w, a, b: a // b if b else 0, False),
    "arith.remui": (lambda w, a, b: a % b if b else a, False),
    "arith.shli": (lambda w, a, b: a << b if b < w else 0, False),
    "arith.shrui": (lambda w, a, b: a >> b if b < w else 0, False),
    "arith.shrsi": (lambda w, a, b: a >> min(b % (1 << w), w), True),
    "tt.mulhiui": (lambda w, a, b: a * b >> w, False),
    "math.absi": (lambda w, a: abs(a), True),
}


@pytest.mark.parametrize("kind", INTS, ids=str)
@pytest.mark.parametrize("name", INT_ORACLES)
def test_integers(name: str, kind: IntegerType) -> None:
    function, sees_signed = INT_ORACLES[name]
    view = as_signed if sees_signed else as_unsigned
    values = int_values(kind)
    rows = [(a,) for a in values] if name == "math.absi" else [(a, b) for a in values for b in values]
    op = make(name, [kind] * len(rows[0]), kind)
    for row, got in zip(rows, run(op, *map(list, zip(*rows, strict=True))), strict=True):
        expected = as_signed(function(kind.width, *(view(value, kind) for value in row)), kind)
        assert as_signed(int(got), kind) == expected, (name, row)


@pytest.mark.parametrize("kind", INTS, ids=str)
@pytest.mark.parametrize("predicate", INT_PREDICATES)
def test_integer_comparisons(predicate: str, kind: IntegerType) -> None:
    relation = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}[predicate[-2:]]
    view = as_unsigned if predicate[0] == "u" else as_signed
    pairs = [(a, b) for a in int_values(kind) for b in int_values(kind)]
    got = run(make("arith.cmpi", [kind, kind], I1, predicate=predicate), [a for a, _ in pairs], [b for _, b in pairs])
    assert got == [eval(f"{view(a, kind)} {relation} {view(b, kind)}") for a, b in pairs]


@pytest.mark.parametrize("name", ["arith.extsi", "arith.extui", "arith.trunci"])
def test_integer_widths(name: str) -> None:
    for source in INTS:
        for target in INTS:
            if (target.width > source.width) != (name != "arith.trunci") or source == target:
                continue
            values = int_values(source)
            view = as_unsigned if name == "arith.extui" else as_signed
            got = run(make(name, [source], target), values)
            assert [as_signed(int(value), target) for value in got] == [as_signed(view(v, source), target) for v in values]


# ---- floats ----


def float_values(kind: FloatType) -> list[float]:
    """Zeros, infinities, NaN, subnormals, neighbours of powers of two, the largest values, in the type."""
    bits = 1 << kind.width - 1
    top, one = ((1 << kind.exponent) - 1) << kind.mantissa, ((1 << kind.exponent - 1) - 1) << kind.mantissa
    quiet = 1 << kind.mantissa - 1
    patterns = [0, 1, 2, 3, quiet, (1 << kind.mantissa) - 1, 1 << kind.mantissa, (1 << kind.mantissa) + 1]
    patterns += [one - 1, one, one + 1, one + quiet, one + quiet + 1, one + (1 << kind.mantissa), one + (3 << kind.mantissa)]
    if kind != F8E4M3FN:
        patterns += [top - 1, top - 2, top, top + quiet]
    else:
        patterns += [0x7E, 0x7F]
    chance = np.random.default_rng(7)
    patterns += [int(pattern) for pattern in chance.integers(0, top, 6)]
    both = np.array(patterns + [pattern | bits for pattern in patterns], dtype=f"uint{kind.width}")
    return [float(value) for value in decode(both, kind)]


def exact_round(value: Fraction, kind: FloatType, zero: float = 0.0, toward_zero: bool = False) -> float:
    """Rounds a fraction to a format by the definition, with integers; overflow gives infinity (fp8: the largest value)."""
    if value == 0:
        return zero
    sign, magnitude = (-1.0 if value < 0 else 1.0), abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    quantum = Fraction(2) ** (max(exponent, 2 - (1 << kind.exponent - 1)) - kind.mantissa)
    whole, rest = divmod(magnitude, quantum)
    if not toward_zero and (rest * 2 > quantum or (rest * 2 == quantum and whole % 2)):
        whole += 1
    rounded = whole * quantum
    if rounded > Fraction(max_finite(kind)):
        return sign * (max_finite(kind) if kind.width == 8 or toward_zero else math.inf)
    return sign * float(rounded)


def ieee(function: Callable[..., Fraction], nonfinite: Callable[..., float]) -> Callable[..., float]:
    """An oracle: exact on finite operands, `nonfinite` (float64 arithmetic, right for infinities, NaN and signs of zero) else."""

    def oracle(kind: FloatType, *operands: float) -> float:
        if all(math.isfinite(value) for value in operands):
            try:
                exact = function(*map(Fraction, operands))
            except ZeroDivisionError:
                return nonfinite(*operands)
            if exact != 0:
                return exact_round(exact, kind)
        return nonfinite(*operands)

    return oracle


def f64(function: Callable[..., Any]) -> Callable[..., float]:
    def apply(*operands: float) -> float:
        with np.errstate(all="ignore"):
            return float(function(*map(np.float64, operands)))

    return apply


def maximum(a: float, b: float) -> float:
    if a != a or b != b:
        return math.nan
    return max(a, b, key=lambda value: (value, math.copysign(1, value)))


def minimum(a: float, b: float) -> float:
    return -maximum(-a, -b)


def number(function: Callable[[float, float], float]) -> Callable[[float, float], float]:
    return lambda a, b: b if a != a else a if b != b else function(a, b)


FLOAT_ORACLES: dict[str, Callable[..., float]] = {
    "arith.addf": ieee(lambda a, b: a + b, lambda a, b: a + b),
    "arith.subf": ieee(lambda a, b: a - b, lambda a, b: a - b),
    "arith.mulf": ieee(lambda a, b: a * b, lambda a, b: a * b),
    "arith.divf": ieee(lambda a, b: a / b, f64(np.divide)),
    "tt.precise_divf": ieee(lambda a, b: a / b, f64(np.divide)),
    "math.fma": ieee(lambda a, b, c: a * b + c, lambda a, b, c: a * b + c),
    "arith.remf": lambda kind, a, b: math.nan if b == 0 or a != a or b != b or math.isinf(a) else math.fmod(a, b),
    "arith.negf": lambda kind, a: -a,
    "math.absf": lambda kind, a: abs(a),
    "math.ceil": lambda kind, a: math.copysign(math.ceil(a), a) if math.isfinite(a) else a,
    "math.floor": lambda kind, a: math.copysign(math.floor(a), a) if math.isfinite(a) else a,
    "arith.maximumf": lambda kind, a, b: maximum(a, b),
    "arith.minimumf": lambda kind, a, b: minimum(a, b),
    "arith.maxnumf": lambda kind, a, b: number(maximum)(a, b),
    "arith.minnumf": lambda kind, a, b: number(minimum)(a, b),
}


@pytest.mark.parametrize("kind", FLOATS, ids=str)
@pytest.mark.parametrize("name", FLOAT_ORACLES)
def test_floats(name: str, kind: FloatType) -> None:
    arity = 3 if name == "math.fma" else 1 if name in ("arith.negf", "math.absf", "math.ceil", "math.floor") else 2
    values = float_values(kind)
    rows: list[tuple[float, ...]]
    if arity == 1:
        rows = [(a,) for a in values]
    elif arity == 2:
        rows = [(a, b) for a in values for b in values]
    else:
        chance = np.random.default_rng(11)
        rows = [tuple(values[i] for i in chance.integers(0, len(values), 3)) for _ in range(1500)]
        rows += [(a, 1.0, c) for a in values for c in values]
    got = run(make(name, [kind] * arity, kind), *map(list, zip(*rows, strict=True)))
    for row, value in zip(rows, got, strict=True):
        assert same(value, FLOAT_ORACLES[name](kind, *row)), (name, row, value)


def test_fma_rounds_once() -> None:
    """Cases in which rounding the product, or rounding twice through float64, gives another result."""
    tiny, up = 2.0**-100, 1 + 2.0**-8
    bf16 = [(1.0078125, 1.00390625 * 2, 2.0**-120), (1 + 2.0**-7, 1 + 2.0**-7, -(2.0**-130))]
    f32 = [(1 + 2.0**-23, 1 + 2.0**-23, tiny), (float(np.float32(1 / 3)), 3.0, -1.0), (up, up * 2.0**-16, 1.0)]
    for kind, rows in ((BF16, bf16), (F32, f32)):
        rows = [tuple(float(v) for v in decode(encode(np.array(row, carrier(kind)), kind), kind)) for row in rows]
        got = run(make("math.fma", [kind] * 3, kind), *map(list, zip(*rows, strict=True)))
        for (a, b, c), value in zip(rows, got, strict=True):
            assert value == exact_round(Fraction(a) * Fraction(b) + Fraction(c), kind)


@pytest.mark.parametrize("kind", FLOATS, ids=str)
@pytest.mark.parametrize("predicate", FLOAT_PREDICATES)
def test_float_comparisons(predicate: str, kind: FloatType) -> None:
    pairs = [(a, b) for a in float_values(kind) for b in float_values(kind)]
    got = run(make("arith.cmpf", [kind, kind], I1, predicate=predicate), [a for a, _ in pairs], [b for _, b in pairs])
    symbols = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    for (a, b), value in zip(pairs, got, strict=True):
        unordered = a != a or b != b
        if predicate in ("true", "false", "uno", "ord"):
            expected = {"true": True, "false": False, "uno": unordered, "ord": not unordered}[predicate]
        else:
            expected = (
                predicate[0] == "u"
                if unordered
                else {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[symbols[predicate[1:]]]
            )
        assert value == expected, (predicate, a, b)


ELEMENTARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "math.cos": torch.cos,
    "math.erf": torch.erf,
    "math.exp": torch.exp,
    "math.exp2": torch.exp2,
    "math.log": torch.log,
    "math.log1p": torch.log1p,
    "math.log2": torch.log2,
    "math.rsqrt": torch.rsqrt,
    "math.sin": torch.sin,
    "math.sqrt": torch.sqrt,
    "tt.precise_sqrt": torch.sqrt,
    "math.tanh": torch.tanh,
}


@pytest.mark.parametrize("kind", FLOATS, ids=str)
@pytest.mark.parametrize("name", ELEMENTARY)
def test_elementary_functions(name: str, kind: FloatType) -> None:
    """Within half a unit in the last place of the value that torch finds in float64 (f64: two units)."""
    values = [*float_values(kind), 0.3, -0.7, 2.5, 11.0, 88.0, -80.0, 100.0]
    values = decode(encode(np.array(values, carrier(kind)), kind), kind).astype(np.float64).tolist()
    if name in ("math.cos", "math.sin"):  # huge angles: nobody agrees
        values = [value for value in values if not abs(value) > 1e4]
    for x, value in zip(values, run(make(name, [kind], kind), values), strict=True):
        exact = float(ELEMENTARY[name](torch.tensor(x, dtype=torch.float64)))
        if kind == F64:
            assert same(value, exact) or abs(value - exact) <= 2 * abs(math.ulp(exact)), (name, x)
        else:
            expected = exact_round(Fraction(exact), kind, exact) if math.isfinite(exact) else exact
            assert same(value, expected), (name, x, value, expected)


@pytest.mark.parametrize("propagate", ["none", "all"])
@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_clamp(kind: FloatType, propagate: str) -> None:
    values = float_values(kind)
    got = run(make("tt.clampf", [kind] * 3, kind, propagate_nan=propagate), values, [-1.0] * len(values), [2.0] * len(values))
    for x, value in zip(values, got, strict=True):
        missing = math.nan if propagate == "all" else -1.0
        assert same(value, missing if x != x else min(max(x, -1.0), 2.0)), x


# ---- conversions ----


@pytest.mark.parametrize("target", [*FLOATS, *FP8], ids=str)
@pytest.mark.parametrize("source", [*FLOATS, *FP8], ids=str)
def test_float_conversions(source: FloatType, target: FloatType) -> None:
    values = float_values(source)
    edges = float_values(target) + [max_finite(target) * factor for factor in (1.01, 1.04, 2.0)]
    if source in (F32, F64):
        with np.errstate(over="ignore"):  # an edge of a wide target is infinite in a narrow source
            edges_here = np.array(edges, np.float64).astype(carrier(source))
        values += [float(value) for value in decode(encode(edges_here, source), source)]
    for rounding in ("rtne", "rtz"):
        got = run(make("tt.fp_to_fp", [source], target, rounding=rounding), values)
        for x, value in zip(values, got, strict=True):
            if math.isfinite(x):
                expected = exact_round(Fraction(x), target, x, rounding == "rtz")
            else:
                expected = math.copysign(max_finite(target), x) if math.isinf(x) and target.width == 8 else x
            assert same(value, expected) or (value == expected == 0), (x, value, expected)
    name = "arith.truncf" if target.width < source.width else "arith.extf"
    if target.width != source.width:
        assert all(map(same, run(make(name, [source], target), values), run(make("tt.fp_to_fp", [source], target), values)))


@pytest.mark.parametrize("kind", [*FLOATS, *FP8], ids=str)
@pytest.mark.parametrize("source", INTS, ids=str)
@pytest.mark.parametrize("name", ["arith.sitofp", "arith.uitofp"])
def test_integers_to_floats_round_once(name: str, source: IntegerType, kind: FloatType) -> None:
    view = as_signed if name == "arith.sitofp" else as_unsigned
    values = int_values(source)
    if source.width >= 32:  # half-way cases, and a little beyond, of every precision
        for bits in (3, 4, 8, 11, 24, 53):
            for shift in range(source.width - bits - 2):
                for low in (-1, 0, 1):
                    values += [((1 << bits + 1) + 1 << shift) + low, -((1 << bits + 1) + 3 << shift) + low]
        values = [as_signed(value, source) for value in values]
    for x, value in zip(values, run(make(name, [source], kind), values), strict=True):
        assert same(value, exact_round(Fraction(view(x, source)), kind)), x


@pytest.mark.parametrize("target", INTS, ids=str)
@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_floats_to_integers_truncate_and_saturate(kind: FloatType, target: IntegerType) -> None:
    values = float_values(kind)
    powers = [sign * 2.0**n + part for n in (0, 7, 8, 31, 32, 63, 64) for sign in (1, -1) for part in (-0.75, 0.0, 0.75)]
    with np.errstate(over="ignore"):
        values += decode(encode(np.array(powers).astype(carrier(kind)), kind), kind).tolist()
    for name, low, high in (
        ("arith.fptosi", -(1 << target.width - 1), (1 << target.width - 1) - 1),
        ("arith.fptoui", 0, (1 << target.width) - 1),
    ):
        for x, value in zip(values, run(make(name, [kind], target), values), strict=True):
            whole = 0 if x != x else low if x == -math.inf else high if x == math.inf else min(max(math.trunc(x), low), high)
            assert as_signed(int(value), target) == as_signed(whole, target), x


@pytest.mark.parametrize("name", ["arith.bitcast", "tt.bitcast"])
def test_bitcasts_keep_every_bit(name: str) -> None:
    for kind in (*FLOATS, *FP8):
        integer = IntegerType(kind.width)
        patterns = encode(np.array(float_values(kind), carrier(kind)), kind)
        there = make(name, [kind], integer)
        back = make(name, [integer], kind)
        numbers = evaluate(there, [decode(patterns, kind)])[0]
        assert numbers.dtype == carrier(integer)
        assert (numbers.view(patterns.dtype) == patterns).all()
        assert (encode(evaluate(back, [numbers])[0], kind) == patterns).all()


# ---- the rest ----


def test_select() -> None:
    op = make("arith.select", [I1, F32, F32], F32)
    assert run(op, [True, False], [1.0, 2.0], [3.0, -0.0]) == [1.0, -0.0]


def test_pointer_arithmetic() -> None:
    for pointee, size in ((F32, 4), (I1, 1), (BF16, 2), (I64, 8), (PointerType(F32), 8)):
        for offset in (I8, I32, I64):
            op = make("tt.addptr", [PointerType(pointee), offset], PointerType(pointee))
            assert run(op, [1000, 1000], [3, -5]) == [1000 + 3 * size, 1000 - 5 * size]
    assert run(make("tt.int_to_ptr", [I64], PointerType(F32)), [-1, 5]) == [-1, 5]
    assert run(make("tt.int_to_ptr", [I32], PointerType(F32)), [-1]) == [(1 << 32) - 1]
    assert run(make("tt.ptr_to_int", [PointerType(F32)], I32), [(1 << 32) + 7]) == [7]


def test_every_elementwise_row_is_defined_and_tested() -> None:
    rows = {row.name for table in (ARITH, MATH, TT) for row in table.rows.values() if Trait.ELEMENTWISE in row.traits}
    elsewhere = {
        "tt.extern_elementwise",
        "cpu.dot_bytes",
    }  # tests/backends/cpu/test_libdevice.py, tests/backends/cpu/ttir/test_dot_bytes.py
    assert rows | elsewhere == set(ELEMENTWISE)
    tested = set(INT_ORACLES) | set(FLOAT_ORACLES) | set(ELEMENTARY)
    tested |= {"arith.cmpi", "arith.cmpf", "arith.select", "tt.clampf", "arith.bitcast", "tt.bitcast", "tt.fp_to_fp"}
    tested |= {"arith.extsi", "arith.extui", "arith.trunci", "arith.extf", "arith.truncf"}
    tested |= {"arith.sitofp", "arith.uitofp", "arith.fptosi", "arith.fptoui"}
    tested |= {"tt.addptr", "tt.int_to_ptr", "tt.ptr_to_int"}
    assert rows == tested


def test_only_pure_operations_are_evaluated() -> None:
    for op in (
        Operation("tt.get_program_id", attributes={"axis": "x"}, result_types=[I32]),
        make("tt.load", [PointerType(F32)], F32),
    ):
        with pytest.raises(ValueError, match="does more than compute on its operands"):
            evaluate(op, [np.int64(0)] * len(op.operands))
