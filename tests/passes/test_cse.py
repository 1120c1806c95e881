"""cse: equal computations merge where the first dominates; what only looks equal does not."""

from __future__ import annotations

import importlib

import pytest

from kernelpack.passes import cse
from tests.passes.before_after import assert_linear_in_nesting, check, stays


def test_chains_merge() -> None:
    check(
        cse,
        "%x: i32, %y: i32",
        """
        %a = arith.addi %x, %y : i32
        %b = arith.muli %a, %x : i32
        %c = arith.addi %x, %y : i32
        %d = arith.muli %c, %x : i32
        tt.return %b, %d : i32, i32
        """,
        """
        %a = arith.addi %x, %y : i32
        %b = arith.muli %a, %x : i32
        tt.return %b, %b : i32, i32
        """,
    )


def test_operands_of_commutative_operations_swap() -> None:
    check(
        cse,
        "%x: i32, %y: i32, %z: i32",
        """
        %a = arith.addi %x, %y : i32
        %b = arith.addi %y, %x : i32
        %c = arith.subi %x, %y : i32
        %d = arith.subi %y, %x : i32
        tt.return %a, %b, %c, %d : i32, i32, i32, i32
        """,
        """
        %a = arith.addi %x, %y : i32
        %c = arith.subi %x, %y : i32
        %d = arith.subi %y, %x : i32
        tt.return %a, %a, %c, %d : i32, i32, i32, i32
        """,
    )


@pytest.mark.parametrize(
    "body",
    [
        "%a = arith.constant 0.0 : f32\n%b = arith.constant -0.0 : f32\ntt.return %a, %b : f32, f32",
        "%a = arith.constant true\n%b = arith.constant 1 : i8\ntt.return %a, %b : i1, i8",
        "%a = arith.constant 1 : i32\n%b = arith.constant 1 : i64\ntt.return %a, %b : i32, i64",
        "%a = arith.constant 0x7FC00000 : f32\n%b = arith.constant 0xFFC00000 : f32\ntt.return %a, %b : f32, f32",
        "%a = arith.cmpi slt, %x, %y : i32\n%b = arith.cmpi ult, %x, %y : i32\ntt.return %a, %b : i1, i1",
        "%a = arith.extsi %x : i32 to i64\n%b = arith.extui %x : i32 to i64\ntt.return %a, %b : i64, i64",
        "%a = tt.splat %x : i32 -> tensor<4xi32>\n%b = tt.splat %x : i32 -> tensor<8xi32>\ntt.return %a, %b : tensor<4xi32>, tensor<8xi32>",
        "%a = tt.load %p : !tt.ptr<i32>\n%b = tt.load %p : !tt.ptr<i32>\ntt.return %a, %b : i32, i32",
    ],
    ids=["signs of zero", "true and one", "widths", "signs of NaN", "predicates", "operations", "result types", "loads"],
)
def test_what_only_looks_equal_stays(body: str) -> None:
    stays(cse, "%x: i32, %y: i32, %p: !tt.ptr<i32>", body)


def test_equal_constants_merge_even_nan() -> None:
    check(
        cse,
        "",
        "%a = arith.constant 0x7FC00000 : f32\n%b = arith.constant 0x7FC00000 : f32\ntt.return %a, %b : f32, f32",
        "%a = arith.constant 0x7FC00000 : f32\ntt.return %a, %a : f32, f32",
    )


def test_inner_blocks_use_what_outer_blocks_know() -> None:
    check(
        cse,
        "%c: i1, %x: i32, %p: !tt.ptr<i32>",
        """
        %a = arith.addi %x, %x : i32
        scf.if %c {
          %b = arith.addi %x, %x : i32
          tt.store %p, %b : !tt.ptr<i32>
        }
        """,
        """
        %a = arith.addi %x, %x : i32
        scf.if %c {
          tt.store %p, %a : !tt.ptr<i32>
        }
        """,
    )


def test_branches_do_not_know_each_other() -> None:
    stays(
        cse,
        "%c: i1, %x: i32, %p: !tt.ptr<i32>",
        """
        scf.if %c {
          %a = arith.addi %x, %x : i32
          tt.store %p, %a : !tt.ptr<i32>
        } else {
          %b = arith.addi %x, %x : i32
          tt.store %p, %b : !tt.ptr<i32>
        }
        %d = arith.addi %x, %x : i32
        tt.return %d : i32
        """,
    )


_REDUCE = """
%{name} = "tt.reduce"(%t) <{{axis = 0 : i32}}> ({{
^bb0(%l: f32, %m: f32):
  %s = {combine} %l, %m : f32
  tt.reduce.return %s : f32
}}) : (tensor<8xf32>) -> f32
"""


def test_equal_reductions_merge_and_different_ones_do_not() -> None:
    first = _REDUCE.format(name="a", combine="arith.addf")
    check(
        cse,
        "%t: tensor<8xf32>",
        first + _REDUCE.format(name="b", combine="arith.addf") + "tt.return %a, %b : f32, f32",
        first + "tt.return %a, %a : f32, f32",
    )
    stays(cse, "%t: tensor<8xf32>", first + _REDUCE.format(name="b", combine="arith.mulf") + "tt.return %a, %b : f32, f32")


def test_program_ids_merge_functions_stay_apart() -> None:
    check(
        cse,
        "",
        "%a = tt.get_program_id x : i32\n%b = tt.get_program_id x : i32\n%c = tt.get_program_id y : i32\ntt.return %a, %b, %c : i32, i32, i32",
        "%a = tt.get_program_id x : i32\n%c = tt.get_program_id y : i32\ntt.return %a, %a, %c : i32, i32, i32",
    )


def test_promises_are_kept() -> None:
    check(
        cse,
        "%x: i32",
        """
        %a = arith.muli %x, %x : i32
        %b = arith.muli %x, %x {tt.divisibility = array<i32: 16>} : i32
        tt.return %a, %b : i32, i32
        """,
        """
        %a = arith.muli %x, %x {tt.divisibility = array<i32: 16>} : i32
        tt.return %a, %a : i32, i32
        """,
    )
    stays(  # what is promised in a branch need not hold outside
        cse,
        "%x: i32, %c: i1, %p: !tt.ptr<i32>",
        """
        %a = arith.muli %x, %x : i32
        scf.if %c {
          %b = arith.muli %x, %x {tt.divisibility = array<i32: 16>} : i32
          tt.store %p, %b : !tt.ptr<i32>
        }
        tt.return %a : i32
        """,
    )


_CHOICE = """
%{name} = scf.if %c -> (i32) {{
  %inner = {inner} %x, %x : i32
  scf.yield %inner : i32
}} else {{
  scf.yield %x : i32
}}
"""


def test_conditionals_merge_by_what_is_inside() -> None:
    first, other = (_CHOICE.format(name=name, inner=inner) for name, inner in (("a", "arith.addi"), ("b", "arith.muli")))
    check(
        cse,
        "%x: i32, %c: i1",
        first + other + first.replace("%a", "%d") + other.replace("%b", "%e") + "tt.return %a, %b, %d, %e : i32, i32, i32, i32",
        first + other + "tt.return %a, %b, %a, %b : i32, i32, i32, i32",
    )


def test_the_work_for_nested_conditionals_grows_as_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_linear_in_nesting(cse, importlib.import_module("kernelpack.passes.cse"), "_key", monkeypatch)
