"""decompose_dots and widen_small_floats: products become what the hardware has."""

from __future__ import annotations

import pytest

from kernelpack.backends.cuda.passes.decompose_products import decompose_dots, widen_small_floats
from tests.backends.gpu.ttgir import check


def test_bfloat16_accumulators_sum_in_float32() -> None:
    check(
        decompose_dots,
        "%a: tensor<16x16xbf16>, %b: tensor<16x16xbf16>, %c: tensor<16x16xbf16>",
        "%d = tt.dot %a, %b, %c : tensor<16x16xbf16> * tensor<16x16xbf16> -> tensor<16x16xbf16>",
        """
        %0 = arith.extf %c : tensor<16x16xbf16> to tensor<16x16xf32>
        %1 = tt.dot %a, %b, %0 : tensor<16x16xbf16> * tensor<16x16xbf16> -> tensor<16x16xf32>
        %d = arith.truncf %1 : tensor<16x16xf32> to tensor<16x16xbf16>
        """,
        {},
    )


@pytest.mark.parametrize("kind", ["f8E5M2", "f8E4M3B15"])
def test_eight_bit_floats_are_multiplied_as_halves(kind: str) -> None:
    check(
        lambda function: widen_small_floats(function, has_fp8_mma=False),
        f"%a: tensor<16x32x{kind}>, %b: tensor<32x16x{kind}>, %c: tensor<16x16xf32>",
        f"%d = tt.dot %a, %b, %c : tensor<16x32x{kind}> * tensor<32x16x{kind}> -> tensor<16x16xf32>",
        f"""
        %0 = tt.fp_to_fp %a : tensor<16x32x{kind}> -> tensor<16x32xf16>
        %1 = tt.fp_to_fp %b : tensor<32x16x{kind}> -> tensor<32x16xf16>
        %d = tt.dot %0, %1, %c : tensor<16x32xf16> * tensor<32x16xf16> -> tensor<16x16xf32>
        """,
        {},
    )


@pytest.mark.parametrize("kind", ["bf16", "f16"])
@pytest.mark.parametrize("precision", ["tf32", "tf32x3"])
def test_what_was_widened_for_tf32_is_multiplied_as_it_was(kind: str, precision: str) -> None:
    check(
        decompose_dots,
        f"%a: tensor<16x32x{kind}>, %b: tensor<16x32x{kind}>, %c: tensor<16x16xf32>",
        f"""
        %x = arith.extf %a : tensor<16x32x{kind}> to tensor<16x32xf32>
        %y = arith.extf %b : tensor<16x32x{kind}> to tensor<16x32xf32>
        %t = tt.trans %y {{order = array<i32: 1, 0>}} : tensor<16x32xf32> -> tensor<32x16xf32>
        %d = tt.dot %x, %t, %c, inputPrecision = {precision} : tensor<16x32xf32> * tensor<32x16xf32> -> tensor<16x16xf32>
        """,
        f"""
        %x = arith.extf %a : tensor<16x32x{kind}> to tensor<16x32xf32>
        %y = arith.extf %b : tensor<16x32x{kind}> to tensor<16x32xf32>
        %t = tt.trans %y {{order = array<i32: 1, 0>}} : tensor<16x32xf32> -> tensor<32x16xf32>
        %0 = tt.trans %b {{order = array<i32: 1, 0>}} : tensor<16x32x{kind}> -> tensor<32x16x{kind}>
        %d = tt.dot %a, %0, %c, inputPrecision = {precision} : tensor<16x32x{kind}> * tensor<32x16x{kind}> -> tensor<16x16xf32>
        """,
        {},
    )


@pytest.mark.parametrize(
    ("left", "right", "depth", "precision"),
    [
        ("bf16", "f16", 32, "tf32"),  # no instruction multiplies both
        ("bf16", "f32", 32, "tf32"),
        ("bf16", "bf16", 8, "tf32"),  # less than an instruction's depth
        ("bf16", "bf16", 32, "ieee"),  # tensor cores round sums in another way
    ],
)
def test_other_products_of_float32_stay(left: str, right: str, depth: int, precision: str) -> None:
    def widened(name: str, kind: str, shape: str) -> tuple[str, str]:
        line = f"%w{name} = arith.extf %{name} : tensor<{shape}x{kind}> to tensor<{shape}xf32>\n"
        return ("", f"%{name}") if kind == "f32" else (line, f"%w{name}")

    a, b = widened("a", left, f"16x{depth}"), widened("b", right, f"{depth}x16")
    text = f"{a[0]}{b[0]}%d = tt.dot {a[1]}, {b[1]}, %c, inputPrecision = {precision} : tensor<16x{depth}xf32> * tensor<{depth}x16xf32> -> tensor<16x16xf32>"
    check(
        decompose_dots,
        f"%a: tensor<16x{depth}x{left}>, %b: tensor<{depth}x16x{right}>, %c: tensor<16x16xf32>",
        text.replace(", inputPrecision = ieee", ""),
        text.replace(", inputPrecision = ieee", ""),
        {},
    )
