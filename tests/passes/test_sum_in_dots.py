"""sum_in_dots: what is added to a product becomes where its sum begins; products that others read, or of few bits, stay."""

from __future__ import annotations

import pytest

from kernelpack.passes.sum_in_dots import sum_in_dots
from tests.passes.before_after import check, stays

ARGUMENTS = "%a: tensor<16x16xf16>, %b: tensor<16x16xf16>, %x: tensor<16x16xf32>"
ZERO = "%zero = arith.constant dense<0.0> : tensor<16x16xf32>"
TYPES = "tensor<16x16xf16> * tensor<16x16xf16> -> tensor<16x16xf32>"


@pytest.mark.parametrize("operands", ["%x, %d", "%d, %x"])
def test_what_is_added_is_where_the_sum_begins(operands: str) -> None:
    check(
        sum_in_dots,
        ARGUMENTS,
        f"""
        {ZERO}
        %d = tt.dot %a, %b, %zero : {TYPES}
        %y = arith.addf {operands} : tensor<16x16xf32>
        tt.return %y : tensor<16x16xf32>
        """,
        f"""
        {ZERO}
        %y = tt.dot %a, %b, %x : {TYPES}
        tt.return %y : tensor<16x16xf32>
        """,
    )


def test_two_products_are_one_sum() -> None:
    check(
        sum_in_dots,
        ARGUMENTS,
        f"""
        {ZERO}
        %d = tt.dot %a, %b, %zero : {TYPES}
        %e = tt.dot %b, %a, %zero : {TYPES}
        %y = arith.addf %d, %e : tensor<16x16xf32>
        tt.return %y : tensor<16x16xf32>
        """,
        f"""
        {ZERO}
        %e = tt.dot %b, %a, %zero : {TYPES}
        %y = tt.dot %a, %b, %e : {TYPES}
        tt.return %y : tensor<16x16xf32>
        """,
    )


def test_a_product_that_others_read_stays() -> None:
    stays(
        sum_in_dots,
        ARGUMENTS,
        f"""
        {ZERO}
        %d = tt.dot %a, %b, %zero : {TYPES}
        %y = arith.addf %x, %d : tensor<16x16xf32>
        %z = arith.mulf %y, %d : tensor<16x16xf32>
        tt.return %z : tensor<16x16xf32>
        """,
    )


def test_a_product_that_has_left_a_loop_stays_outside() -> None:
    stays(
        sum_in_dots,
        f"{ARGUMENTS}, %n: i32",
        f"""
        {ZERO}
        %d = tt.dot %a, %b, %zero : {TYPES}
        %y = scf.for %i = %n to %n step %n iter_args(%t = %x) -> (tensor<16x16xf32>)  : i32 {{
          %u = arith.addf %t, %d : tensor<16x16xf32>
          scf.yield %u : tensor<16x16xf32>
        }}
        tt.return %y : tensor<16x16xf32>
        """,
    )


def test_sums_of_few_bits_stay_apart() -> None:
    stays(
        sum_in_dots,
        "%a: tensor<16x32xf8E4M3FN>, %b: tensor<32x16xf8E4M3FN>, %x: tensor<16x16xf32>",
        f"""
        {ZERO}
        %d = tt.dot %a, %b, %zero {{maxNumImpreciseAcc = 1073741824 : i32}} : tensor<16x32xf8E4M3FN> * tensor<32x16xf8E4M3FN> -> tensor<16x16xf32>
        %y = arith.addf %x, %d : tensor<16x16xf32>
        tt.return %y : tensor<16x16xf32>
        """,
    )
