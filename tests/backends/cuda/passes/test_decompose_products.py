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
