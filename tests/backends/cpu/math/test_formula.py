"""Formulas with Python's operators emit one instruction each, in order; comparisons of NaN are false, choices are by element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kernelpack.backends.cpu.emit.elementwise import Lowering
from kernelpack.backends.cpu.math.formula import Number
from kernelpack.llvm.text import Emitter, Val
from tests.backends.cpu.math.calls import compiled


def lines(formula: Callable[..., Number], kind: str = "float") -> list[str]:
    em = Emitter()
    formula(Number(em, Val(kind, "%x")), Number(em, Val(kind, "%y")))
    return [line.strip() for line in em.lines]


ONE = "float 0x3FF0000000000000"


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        (lambda x, y: x + y, "fadd float %x, %y"),
        (lambda x, y: x - y, "fsub float %x, %y"),
        (lambda x, y: x * y, "fmul float %x, %y"),
        (lambda x, y: x / y, "fdiv float %x, %y"),
        (lambda x, y: x + 1.0, "fadd float %x, 0x3FF0000000000000"),
        (lambda x, y: 1.0 + x, f"fadd {ONE}, %x"),
        (lambda x, y: 1.0 - x, f"fsub {ONE}, %x"),
        (lambda x, y: 1.0 * x, f"fmul {ONE}, %x"),
        (lambda x, y: 1.0 / x, f"fdiv {ONE}, %x"),
        (lambda x, y: -x, "fsub float 0x8000000000000000, %x"),  # of -0: 0 - x is 0 for 0
        (lambda x, y: x.intrinsic("fma", y, 1.0), f"call float @llvm.fma.f32(float %x, float %y, {ONE})"),
        (lambda x, y: x < y, "fcmp olt float %x, %y"),
        (lambda x, y: x > 1.0, "fcmp ogt float %x, 0x3FF0000000000000"),
        (lambda x, y: x.equals(y), "fcmp oeq float %x, %y"),
        (lambda x, y: x.differs(y), "fcmp une float %x, %y"),
        (lambda x, y: x.converted("double"), "fpext float %x to double"),
    ],
)
def test_an_operator_is_an_instruction(formula: Callable[..., Number], expected: str) -> None:
    assert lines(formula) == [f"%v1 = {expected}"]


def test_what_is_of_a_type_already_is_not_converted() -> None:
    assert lines(lambda x, y: x.converted("float")) == []
    assert lines(lambda x, y: x.converted("float"), "<4 x double>") == ["%v1 = fptrunc <4 x double> %x to <4 x float>"]


def test_constants_fill_all_lanes() -> None:
    assert lines(lambda x, y: x.constant(1.0) + x, "<4 x float>") == [f"%v1 = fadd <4 x float> splat ({ONE}), %x"]


def test_operations_are_rounded_in_the_order_in_which_they_are_written() -> None:
    x, y = np.full(8, 2.0**24, np.float32), np.full(8, 1.0, np.float32)

    def formula(order: Callable[[Number, Number], Number]) -> float:
        call = compiled(lambda lo, values: order(*(Number(lo.em, value) for value in values)).val, ["float", "float"], "float")
        return float(call(x, y)[0])

    assert formula(lambda a, b: (a + b) + b) == 2.0**24
    assert formula(lambda a, b: a + (b + b)) == 2.0**24 + 2


def test_choices_and_truths_are_by_element() -> None:
    x = np.array([1, 5, np.nan, -1, 2, 3, 0, 9], np.float32)
    call = compiled(
        lambda lo, values: Number(lo.em, values[0]).constant(7.0).where(
            (Number(lo.em, values[0]) > 1.0) & (Number(lo.em, values[0]) < 4.0) | Number(lo.em, values[0]).equals(9.0), -1.0
        ).val,
        ["float"],
        "float",
    )  # fmt: skip
    assert call(x).tolist() == [-1, -1, -1, -1, 7, 7, -1, 7]


def test_nan_differs_from_itself_and_equals_nothing() -> None:
    x = np.array([np.nan, 1.0] * 4, np.float32)
    differs = compiled(lambda lo, values: Number(lo.em, values[0]).differs(Number(lo.em, values[0])).val, ["float"], "i1")
    equals = compiled(lambda lo, values: Number(lo.em, values[0]).equals(Number(lo.em, values[0])).val, ["float"], "i1")
    assert differs(x).tolist() == [1, 0] * 4
    assert equals(x).tolist() == [0, 1] * 4


@pytest.mark.parametrize("width", [1, 4])
def test_a_branch_is_taken_by_whole_vectors(width: int) -> None:
    """Where one lane asks for it, all lanes of its vector are of the other formula."""
    x = np.array([1, 2, 3, 4, 5, 6, 7, 100], np.float32)

    def emit(lo: Lowering, values: list[Val]) -> Val:
        number = Number(lo.em, values[0])
        return (number + 1.0).unless_any(number > 50.0, lambda: number * 2.0).val

    expected = np.where(x > 50, x * 2, x + 1) if width == 1 else np.concatenate([x[:4] + 1, x[4:] * 2])
    np.testing.assert_array_equal(compiled(emit, ["float"], "float", width)(x), expected)
