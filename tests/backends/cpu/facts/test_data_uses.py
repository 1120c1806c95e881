"""Which integers a kernel works with, and which are places of accesses alone."""

from __future__ import annotations

from kernelpack.backends.cpu.facts.data_uses import used_as_data
from kernelpack.ir.core import Value
from kernelpack.ir.printer import value_names
from tests.ir.examples import function, parse

BODY = """
%i = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
%ns = tt.splat %n : i32 -> tensor<8xi32>
%place = arith.muli %i, %ns : tensor<8xi32>
%wide = arith.extsi %place : tensor<8xi32> to tensor<8xi64>
%inside = arith.cmpi slt, %place, %ns : tensor<8xi32>
%base = tt.splat %p : !tt.ptr<i64> -> tensor<8x!tt.ptr<i64>>
%at = tt.addptr %base, %wide : tensor<8x!tt.ptr<i64>>, tensor<8xi64>
%number = arith.addi %i, %ns : tensor<8xi32>
%stored = arith.extsi %number : tensor<8xi32> to tensor<8xi64>
tt.store %at, %stored, %inside : tensor<8x!tt.ptr<i64>>
%total = scf.for %k = %n to %m step %n iter_args(%t = %m) -> (i32)  : i32 {
  %next = arith.addi %t, %k : i32
  scf.yield %next : i32
}
%seen = arith.sitofp %total : i32 to f32
tt.store %q, %seen : !tt.ptr<f32>
"""


def data() -> set[str]:
    module = parse(function(BODY, "%n: i32, %m: i32, %p: !tt.ptr<i64>, %q: !tt.ptr<f32>"))
    kernel = module.body.operations[0]
    names: dict[Value, str] = value_names(kernel)
    return {names[value].removeprefix("%") for value in used_as_data(kernel)}


def test_offsets_and_what_masks_compare_are_places() -> None:
    assert data().isdisjoint({"place", "wide"})


def test_what_is_stored_is_data_with_all_that_it_is_made_of() -> None:
    assert {"stored", "number", "i", "ns", "n"} <= data()


def test_what_a_loop_carries_to_a_number_is_data() -> None:
    assert {"total", "next", "t", "k", "m"} <= data()
