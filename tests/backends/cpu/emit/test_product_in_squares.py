"""Products by ARM's instructions for small matrices: which kernels have them, and that squares become rows; `make arm` runs them."""

from __future__ import annotations

import re

import pytest

from kernelpack.backends.cpu.facts.features import Level
from tests.backends.cpu.emit.llir import program
from tests.backends.cpu.plan.plans import ARM, ARM_BF16, SVE2
from tests.backends.cpu.plan.test_plan_product import product
from tests.backends.fragments import in_order

BF16S = {"a": "*bf16", "b": "*bf16"}
BYTES = {"a": "*i8", "b": "*i8", "c": "*i32"}
SIZES = {"M": 4, "N": 16, "K": 32, "A": True, "B": True}
"""Four rows meet four registers of lanes: in squares, two by eight."""


@pytest.mark.parametrize("level", [ARM_BF16, SVE2])
@pytest.mark.parametrize(("types", "name", "units"), [(BF16S, "bfmmla(", 4), (BYTES, "smmla.v4i32.v16i8(", 4)])
def test_each_square_takes_two_units_of_k_at_a_time(level: Level, types: dict[str, str], name: str, units: int) -> None:
    text = program(product, level, **types, **SIZES)
    assert text.count(f"@llvm.aarch64.neon.{name}") == 2 * 8 * units // 2
    assert "dot." not in text


def test_units_of_k_are_put_side_by_side() -> None:
    in_order(
        program(product, ARM_BF16, **BF16S, **SIZES),
        """
        %L = shufflevector <4 x i32> %A, <4 x i32> %B, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
        %H = shufflevector <4 x i32> %A, <4 x i32> %B, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
        %T = shufflevector <2 x i32> %R, <2 x i32> %S, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
        %X = bitcast <4 x i32> %T to <8 x bfloat>
        %Y = bitcast <4 x i32> %L to <8 x bfloat>
        ... = call <4 x float> @llvm.aarch64.neon.bfmmla(<4 x float> ..., <8 x bfloat> %X, <8 x bfloat> %Y)
        """,
    )


def test_rows_that_lie_side_by_side_are_turned_as_they_are_read() -> None:
    text = program(product, ARM_BF16, **BF16S, **(SIZES | {"A": False}))
    assert re.search(r"shufflevector <2 x i32> \S+, <2 x i32> \S+, <4 x i32> <i32 0, i32 2, i32 1, i32 3>", text)


def test_squares_become_rows() -> None:
    text = program(product, ARM_BF16, **BF16S, **SIZES)
    in_order(
        text[text.rindex("bfmmla") :],
        """
        %L = load <4 x float>, ptr %A, align 64
        %X = shufflevector <4 x float> %L, <4 x float> %H, <4 x i32> <i32 0, i32 1, i32 4, i32 5>
        store <4 x float> %X, ptr %A, align 64
        %Y = shufflevector <4 x float> %L, <4 x float> %H, <4 x i32> <i32 2, i32 3, i32 6, i32 7>
        store <4 x float> %Y, ptr ..., align 64
        """,
    )


def test_one_row_has_no_squares() -> None:
    text = program(product, ARM_BF16, **BF16S, **(SIZES | {"M": 1}))
    assert "neon.bfdot.v4f32.v8bf16(" in text
    assert "mmla" not in text


def test_the_lowest_level_has_neither() -> None:
    text = program(product, ARM, **BF16S, **SIZES)
    assert "@llvm.fma.v4f32" in text
    assert "aarch64" not in text
