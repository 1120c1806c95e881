"""How far kernels look at their tiles, and which masks hold for leading elements."""

from __future__ import annotations

import pytest

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.cpu.facts.observed import Observed, leading
from kernelpack.ir.core import Value
from kernelpack.ir.printer import value_names
from tests.ir.examples import function, parse

ROW = """
%i = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
%ten = arith.constant dense<10> : tensor<16xi32>
%m = arith.cmpi slt, %i, %ten : tensor<16xi32>
%zero = arith.constant dense<0.000000e+00> : tensor<16xf32>
%base = tt.splat %p : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>
%at = tt.addptr %base, %i : tensor<16x!tt.ptr<f32>>, tensor<16xi32>
"""
SUM = """ = "tt.reduce"(%s) <{axis = 0 : i32}> ({
^bb0(%a: f32, %b: f32):
  %c = arith.addf %a, %b : f32
  tt.reduce.return %c : f32
}) : (tensor<16xf32>) -> f32
"""


def observed(body: str) -> dict[str, tuple[int, ...]]:
    module = parse(function(ROW + body, "%n: i32, %p: !tt.ptr<f32>, %x: tensor<16xf32>, %q: !tt.ptr<f32>"))
    kernel = module.body.operations[0]
    names: dict[Value, str] = value_names(kernel)
    facts = Observed(kernel, AxisInfoAnalysis(kernel))
    return {
        name.removeprefix("%"): facts.extents(value)
        for value, name in names.items()
        if value.type.__class__.__name__ == "TensorType"
    }


def test_what_is_stored_under_a_mask_is_observed_up_to_its_end() -> None:
    found = observed("%v = arith.addf %x, %x : tensor<16xf32>\ntt.store %at, %v, %m : tensor<16x!tt.ptr<f32>>")
    assert found["v"] == found["x"] == found["at"] == (10,)
    assert found["m"] == (16,)


def test_what_is_stored_elsewhere_too_is_observed_whole() -> None:
    found = observed("tt.store %at, %x, %m : tensor<16x!tt.ptr<f32>>\ntt.store %at, %x : tensor<16x!tt.ptr<f32>>")
    assert found["x"] == (16,)


def test_a_sum_does_not_look_at_the_zeros_at_the_end_of_a_row() -> None:
    found = observed(f"%s = arith.select %m, %x, %zero : tensor<16xi1>, tensor<16xf32>\n%t{SUM}tt.store %q, %t : !tt.ptr<f32>")
    assert found["s"] == found["x"] == (10,)


def test_a_sum_looks_at_other_numbers() -> None:
    body = "%one = arith.constant dense<1.000000e+00> : tensor<16xf32>\n"
    body += f"%s = arith.select %m, %x, %one : tensor<16xi1>, tensor<16xf32>\n%t{SUM}tt.store %q, %t : !tt.ptr<f32>"
    found = observed(body)
    assert found["s"] == (16,)
    assert found["x"] == (10,)


def test_addresses_of_loads_without_a_mask_are_observed_whole() -> None:
    body = "%v = tt.load %at : tensor<16x!tt.ptr<f32>>\ntt.store %at, %v, %m : tensor<16x!tt.ptr<f32>>"
    found = observed(body)
    assert found["v"] == (10,)
    assert found["at"] == found["i"] == (16,)


@pytest.mark.parametrize(
    ("comparison", "count"),
    [
        ("slt, %i, %ten", 10),
        ("sle, %i, %ten", 11),
        ("sgt, %ten, %i", 10),
        ("sge, %ten, %i", 11),
        ("slt, %doubled, %ten", 5),
        ("sle, %doubled, %ten", 6),
        ("slt, %shifted, %ten", 7),
        ("slt, %ten, %i", None),
        ("slt, %negative, %ten", None),
        ("slt, %scalar, %ten", None),
        ("eq, %i, %ten", None),
    ],
)
def test_masks_that_hold_for_leading_elements(comparison: str, count: int | None) -> None:
    body = f"""
    %two = arith.constant dense<2> : tensor<16xi32>
    %three = arith.constant dense<3> : tensor<16xi32>
    %minus = arith.constant dense<-1> : tensor<16xi32>
    %ns = tt.splat %n : i32 -> tensor<16xi32>
    %doubled = arith.muli %i, %two : tensor<16xi32>
    %shifted = arith.addi %i, %three : tensor<16xi32>
    %negative = arith.muli %i, %minus : tensor<16xi32>
    %scalar = arith.addi %i, %ns : tensor<16xi32>
    %c = arith.cmpi {comparison} : tensor<16xi32>
    """
    kernel = parse(function(ROW + body, "%n: i32, %p: !tt.ptr<f32>")).body.operations[0]
    mask = next(value for value, name in value_names(kernel).items() if name == "%c")
    assert leading(mask) == (None if count is None else (0, count))
