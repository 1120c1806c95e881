"""Concatenation becomes join, transpose and reshape; products of 8-bit floats become products of bfloat16."""

from __future__ import annotations

import pytest

from kernelpack.backends.cpu.ttir.expand_ops import expand_ops
from tests.passes.before_after import check, stays


def test_a_concatenation_is_a_join_turned_and_reshaped() -> None:
    check(
        expand_ops,
        "%a: tensor<8xf32>, %b: tensor<8xf32>",
        """
        %c = tt.cat %a, %b : tensor<8xf32> -> tensor<16xf32>
        tt.return %c : tensor<16xf32>
        """,
        """
        %0 = tt.join %a, %b : tensor<8xf32> -> tensor<8x2xf32>
        %1 = tt.trans %0 {order = array<i32: 1, 0>} : tensor<8x2xf32> -> tensor<2x8xf32>
        %c = tt.reshape %1 : tensor<2x8xf32> -> tensor<16xf32>
        tt.return %c : tensor<16xf32>
        """,
    )


@pytest.mark.parametrize("kind", ["f8E4M3FN", "f8E5M2"])
def test_eight_bit_floats_are_multiplied_as_bfloat16(kind: str) -> None:
    check(
        expand_ops,
        f"%a: tensor<16x32x{kind}>, %b: tensor<32x16xbf16>, %c: tensor<16x16xf32>",
        f"""
        %d = tt.fp_to_fp %b, rounding = rtne : tensor<32x16xbf16> -> tensor<32x16x{kind}>
        %e = tt.dot %a, %d, %c : tensor<16x32x{kind}> * tensor<32x16x{kind}> -> tensor<16x16xf32>
        tt.return %e : tensor<16x16xf32>
        """,
        f"""
        %d = tt.fp_to_fp %b, rounding = rtne : tensor<32x16xbf16> -> tensor<32x16x{kind}>
        %0 = tt.fp_to_fp %a : tensor<16x32x{kind}> -> tensor<16x32xbf16>
        %1 = tt.fp_to_fp %d : tensor<32x16x{kind}> -> tensor<32x16xbf16>
        %e = tt.dot %0, %1, %c : tensor<16x32xbf16> * tensor<32x16xbf16> -> tensor<16x16xf32>
        tt.return %e : tensor<16x16xf32>
        """,
    )


@pytest.mark.parametrize(("kind", "result"), [("f32", "f32"), ("bf16", "f32"), ("i8", "i32")])
def test_other_products_stay(kind: str, result: str) -> None:
    stays(
        expand_ops,
        f"%a: tensor<16x32x{kind}>, %b: tensor<32x16x{kind}>, %c: tensor<16x16x{result}>",
        f"""
        %e = tt.dot %a, %b, %c : tensor<16x32x{kind}> * tensor<32x16x{kind}> -> tensor<16x16x{result}>
        tt.return %e : tensor<16x16x{result}>
        """,
    )
