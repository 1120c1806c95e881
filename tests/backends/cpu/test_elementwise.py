"""Every elementwise operation, in every type, at every level: the CPU backend computes what the interpreter defines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernelpack.backends.cpu.emit.elementwise import is_elementwise
from kernelpack.backends.cpu.facts.features import level_of
from kernelpack.ir.core import Block, Builder
from kernelpack.ir.dialects.arith import FLOAT_PREDICATES, INT_PREDICATES
from kernelpack.ir.formats import carrier, decode, round_to
from kernelpack.ir.interpret import evaluate
from kernelpack.ir.types import BF16, F16, F32, F64, I1, I8, I16, I32, I64, FloatType, IntegerType, Type, bit_width, is_float
from kernelpack.target import Target
from tests.backends.cpu.kernels import elementwise_kernel, empty, levels_here, memory_of, run

INTS: list[Type] = [I8, I16, I32, I64]
FLOATS: list[Type] = [F16, BF16, F32, F64]
COUNT = 256

BINARY_INT = [f"arith.{n}" for n in (
    "addi", "subi", "muli", "divsi", "divui", "remsi", "remui", "andi", "ori", "xori", "shli", "shrsi", "shrui",
    "maxsi", "maxui", "minsi", "minui",
)]  # fmt: skip
BINARY_FLOAT = [f"arith.{n}" for n in ("addf", "subf", "mulf", "divf", "remf", "maximumf", "maxnumf", "minimumf", "minnumf")]
UNARY_EXACT = ["arith.negf", "math.absf", "math.floor", "math.ceil", "math.sqrt", "tt.precise_sqrt"]
# the largest error in units in the last place of the interpreter's (correctly rounded) result
UNARY_ULP = {
    "math.exp": 1, "math.exp2": 1, "math.log": 1, "math.log2": 2, "math.log1p": 2, "math.tanh": 2, "math.erf": 1,
    "math.rsqrt": 1, "math.sin": 1, "math.cos": 1,
}  # fmt: skip


def values(kind: Type, seed: int) -> np.ndarray[Any, Any]:
    """Returns edge values and random ones, in the carrier of a type."""
    random = np.random.default_rng(seed)
    if isinstance(kind, IntegerType):
        if kind == I1:
            return random.integers(0, 2, COUNT).astype(bool)
        low, high = -(1 << kind.width - 1), (1 << kind.width - 1) - 1
        edges = [0, 1, -1, 2, -2, 7, low, low + 1, high, high - 1]
        picks = [edges[index] for index in random.integers(0, len(edges), COUNT // 2)]
        return np.array([*picks, *random.integers(low, high, COUNT - len(picks))], dtype=carrier(kind))
    assert isinstance(kind, FloatType)
    edges = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 2.0**-126, 3e38, 65504.0, 0.5, -2.5, 1.5]
    picks = [edges[index] for index in random.integers(0, len(edges), COUNT // 2)]
    spread = random.standard_normal(COUNT - len(picks)) * 10.0 ** random.integers(-6, 6, COUNT - len(picks))
    with np.errstate(all="ignore"):
        return round_to(np.array([*picks, *spread]), kind)


def check(
    name: str, operands: list[Type], result: Type, level: str, *, ulp: int = 0, zero_sign: bool = True, **attributes: Any
) -> None:
    inputs = [values(kind, 7 * index + 1) for index, kind in enumerate(operands)]
    check_on(name, operands, result, level, inputs, ulp=ulp, zero_sign=zero_sign, **attributes)


def check_on(
    name: str,
    operands: list[Type],
    result: Type,
    level: str,
    inputs: list[np.ndarray[Any, Any]],
    *,
    ulp: int = 0,
    zero_sign: bool = True,
    **attributes: Any,
) -> None:
    count = len(inputs[0])
    op = Builder(block := Block(operands)).create(name, block.arguments, attributes, [result])
    expected = evaluate(op, inputs)[0]
    out = empty(count, result)
    memories = [memory_of(column, kind) for column, kind in zip(inputs, operands, strict=True)]
    run(elementwise_kernel(name, operands, result, count, **attributes), level, (1,), *memories, out)
    actual = decode(out, result)
    if not is_float(result):
        wrong = actual != expected
    else:
        both_nan = np.isnan(actual) & np.isnan(expected)
        wrong = ~both_nan & (_distance(actual, expected, result) > ulp)
        if zero_sign and ulp == 0:
            wrong |= ~both_nan & (np.signbit(actual) != np.signbit(expected))
    first = int(np.argmax(wrong))
    shown = [column[first] for column in inputs]
    assert not wrong.any(), f"{name} {shown} gives {actual[first]!r}, not {expected[first]!r} ({int(wrong.sum())} of {count})"


def _distance(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], kind: Type) -> np.ndarray[Any, Any]:
    """Returns how many representable values lie between two numbers, in units in the last place."""
    width = {16: np.int16, 32: np.int32, 64: np.int64}[bit_width(kind)]
    lowest = -(1 << bit_width(kind) - 1)

    def line(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        bits = memory_of(x, kind).view(width).astype(np.int64)
        return np.where(bits < 0, lowest - bits, bits)

    with np.errstate(over="ignore"):  # between the signs of float64 the difference wraps: it stays large
        return np.abs(line(a) - line(b))


def converts_bf16(level: str) -> bool:
    """Whether an instruction of a level rounds to bfloat16, which takes subnormal numbers for zero."""
    return level_of(Target.parse(f"cpu:{level}")).converts_bf16


@pytest.fixture(params=levels_here())
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("kind", INTS, ids=str)
def test_integer_arithmetic_is_bit_exact(kind: Type, level: str) -> None:
    for name in BINARY_INT:
        check(name, [kind, kind], kind, level)
    check("math.absi", [kind], kind, level)


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_float_arithmetic_rounds_once(kind: Type, level: str) -> None:
    flushes = kind == BF16 and converts_bf16(level)  # the instruction takes subnormals for zero
    for name in BINARY_FLOAT:
        check_flushing(name, [kind, kind], kind, level, flushes, zero_sign=name not in ("arith.maxnumf", "arith.minnumf"))
    for name in UNARY_EXACT:
        check_flushing(name, [kind], kind, level, flushes)
    check_flushing("tt.precise_divf", [kind, kind], kind, level, flushes)
    check_flushing("math.fma", [kind, kind, kind], kind, level, flushes)


def check_flushing(name: str, operands: list[Type], result: Type, level: str, flushes: bool, **more: Any) -> None:
    inputs = [values(kind, 7 * index + 1) for index, kind in enumerate(operands)]
    if flushes:  # keep away from results that are subnormal in float32
        inputs = [np.where(np.abs(column) < 1e-15, 0, column).astype(column.dtype) for column in inputs]
        inputs = [
            np.where(np.isfinite(column) & (np.abs(column) > 1e15), 1e15, column).astype(column.dtype) for column in inputs
        ]
        inputs = [round_to(column, kind) for column, kind in zip(inputs, operands, strict=True)]
    check_on(name, operands, result, level, inputs, **more)


@pytest.mark.parametrize("name", UNARY_ULP)
def test_elementary_functions_are_accurate(name: str, level: str) -> None:
    random = np.random.default_rng(3)
    span = {"math.exp": 90, "math.exp2": 130, "math.tanh": 10, "math.erf": 4.5, "math.sin": 1e4, "math.cos": 1e4}.get(name, 1e6)
    for kind in (F32, F16, BF16, F64):
        column = np.concatenate([values(kind, 11), random.uniform(-span, span, 4096 - COUNT)])
        with np.errstate(all="ignore"):
            column = round_to(column, kind)
        if kind == BF16 and converts_bf16(level) and name in ("math.exp", "math.exp2"):
            column = np.maximum(column, np.float32(-80))  # the instruction flushes subnormal results
        check_on(name, [kind], kind, level, [column], ulp={F32: UNARY_ULP[name], F64: 2}.get(kind, 1))


@pytest.mark.parametrize("kind", [I1, *INTS], ids=str)
def test_integer_comparisons_and_casts(kind: Type, level: str) -> None:
    for predicate in INT_PREDICATES:
        check("arith.cmpi", [kind, kind], I1, level, predicate=predicate)
    for other in [I1, *INTS]:
        if bit_width(other) > bit_width(kind):
            check("arith.extsi", [kind], other, level)
            check("arith.extui", [kind], other, level)
        elif bit_width(other) < bit_width(kind):
            check("arith.trunci", [kind], other, level)
    for other in (F16, BF16, F32, F64):
        check("arith.sitofp", [kind], other, level)
        check("arith.uitofp", [kind], other, level)
    check("arith.select", [I1, kind, kind], kind, level)


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_float_comparisons_and_casts(kind: Type, level: str) -> None:
    for predicate in FLOAT_PREDICATES:
        check("arith.cmpf", [kind, kind], I1, level, predicate=predicate)
    for other in INTS:
        check("arith.fptosi", [kind], other, level)
        check("arith.fptoui", [kind], other, level)
    for other in FLOATS:
        flushes = other == BF16 and converts_bf16(level)
        if bit_width(other) > bit_width(kind):
            check("arith.extf", [kind], other, level)
        elif bit_width(other) < bit_width(kind):
            check_flushing("arith.truncf", [kind], other, level, flushes)
            check_flushing("tt.fp_to_fp", [kind], other, level, flushes, rounding="rtz")
    check("arith.select", [I1, kind, kind], kind, level)
    flushes = kind == BF16 and converts_bf16(level)
    check_flushing("tt.clampf", [kind, kind, kind], kind, level, flushes, zero_sign=False, propagate_nan="all")
    same_width = {16: I16, 32: I32, 64: I64}[bit_width(kind)]
    check("arith.bitcast", [kind], same_width, level)
    check("tt.bitcast", [same_width], kind, level)


def test_high_products(level: str) -> None:
    for kind in (I32, I64):
        check("tt.mulhiui", [kind, kind], kind, level)


def test_every_elementwise_operation_of_the_interpreter_is_lowered() -> None:
    from kernelpack.ir.interpret.elementwise import ELEMENTWISE

    apart = {"tt.addptr", "tt.ptr_to_int", "tt.int_to_ptr"}  # exercised through memory
    missing = [name for name in ELEMENTWISE if not is_elementwise(name) and name not in apart]
    assert not missing
