"""dce: what no effect depends on goes, also where loops carry it in a circle; effects and what they need stay."""

from __future__ import annotations

import importlib

import pytest

from kernelpack.passes import dce
from tests.passes.before_after import assert_linear_in_nesting, check, stays


def test_chains_and_unused_loads() -> None:
    check(
        dce,
        "%p: !tt.ptr<i32>, %x: i32",
        """
        %a = arith.addi %x, %x : i32
        %b = arith.muli %a, %x : i32
        %v = tt.load %p : !tt.ptr<i32>
        %w = arith.addi %v, %b : i32
        %c = arith.subi %x, %x : i32
        tt.return %c : i32
        """,
        """
        %c = arith.subi %x, %x : i32
        tt.return %c : i32
        """,
    )


def test_effects_stay() -> None:
    stays(
        dce,
        "%p: !tt.ptr<i32>, %x: i32",
        """
        %v = tt.load %p {is_volatile = true} : !tt.ptr<i32>
        %a = tt.atomic_rmw add, acq_rel, gpu, %p, %x : (!tt.ptr<i32>, i32) -> i32
        gpu.barrier
        scf.for %i = %x to %x step %x  : i32 {
          tt.store %p, %i : !tt.ptr<i32>
        }
        scf.while : () -> () {
          %c = arith.cmpi slt, %x, %x : i32
          scf.condition(%c)
        } do {
        }
        """,
    )


def test_loops_and_branches_without_effect_go() -> None:
    check(
        dce,
        "%p: !tt.ptr<i32>, %x: i32, %c: i1",
        """
        %r = scf.for %i = %x to %x step %x iter_args(%a = %x) -> (i32)  : i32 {
          %v = tt.load %p : !tt.ptr<i32>
          %b = arith.addi %a, %v : i32
          scf.yield %b : i32
        }
        scf.if %c {
          %d = arith.addi %r, %x : i32
        }
        """,
        "",
    )


def test_values_that_a_loop_carries_for_nobody() -> None:
    check(
        dce,
        "%p: !tt.ptr<i32>, %x: i32",
        """
        %r:4 = scf.for %i = %x to %x step %x iter_args(%a = %x, %q = %p, %k = %x, %l = %x) -> (i32, !tt.ptr<i32>, i32, i32)  : i32 {
          %b = arith.addi %a, %x : i32
          %q1 = tt.addptr %q, %x : !tt.ptr<i32>, i32
          %m = arith.addi %k, %l : i32
          scf.yield %b, %q1, %l, %m : i32, !tt.ptr<i32>, i32, i32
        }
        tt.return %r#0 : i32
        """,
        """
        %r = scf.for %i = %x to %x step %x iter_args(%a = %x) -> (i32)  : i32 {
          %b = arith.addi %a, %x : i32
          scf.yield %b : i32
        }
        tt.return %r : i32
        """,
    )


def test_carried_values_that_effects_need_stay() -> None:
    stays(
        dce,
        "%p: !tt.ptr<i32>, %x: i32",
        """
        %r:2 = scf.for %i = %x to %x step %x iter_args(%a = %x, %q = %p) -> (i32, !tt.ptr<i32>)  : i32 {
          tt.store %q, %a : !tt.ptr<i32>
          %b = arith.addi %a, %x : i32
          %q1 = tt.addptr %q, %x : !tt.ptr<i32>, i32
          scf.yield %b, %q1 : i32, !tt.ptr<i32>
        }
        """,
    )


def test_results_of_branches() -> None:
    check(
        dce,
        "%x: i32, %c: i1",
        """
        %r:3 = scf.if %c -> (i32, i32, i32) {
          %a = arith.addi %x, %x : i32
          %s:2 = scf.if %c -> (i32, i32) {
            scf.yield %a, %x : i32, i32
          } else {
            scf.yield %x, %a : i32, i32
          }
          scf.yield %s#0, %s#1, %x : i32, i32, i32
        } else {
          %b = arith.muli %x, %x : i32
          scf.yield %b, %x, %b : i32, i32, i32
        }
        tt.return %r#1 : i32
        """,
        """
        %r = scf.if %c -> (i32) {
          %a = arith.addi %x, %x : i32
          %s = scf.if %c -> (i32) {
            scf.yield %x : i32
          } else {
            scf.yield %a : i32
          }
          scf.yield %s : i32
        } else {
          scf.yield %x : i32
        }
        tt.return %r : i32
        """,
    )


def test_both_kinds_of_values_of_a_while() -> None:
    check(
        dce,
        "%n: i32",
        """
        %r:2 = scf.while (%x = %n, %u = %n) : (i32, i32) -> (i32, i32) {
          %c = arith.cmpi slt, %x, %n : i32
          %v = arith.muli %u, %u : i32
          scf.condition(%c) %x, %v : i32, i32
        } do {
        ^bb0(%y: i32, %w: i32):
          %z = arith.addi %y, %n : i32
          scf.yield %z, %w : i32, i32
        }
        tt.return %r#0 : i32
        """,
        """
        %r = scf.while (%x = %n) : (i32) -> i32 {
          %c = arith.cmpi slt, %x, %n : i32
          scf.condition(%c) %x : i32
        } do {
        ^bb0(%y: i32):
          %z = arith.addi %y, %n : i32
          scf.yield %z : i32
        }
        tt.return %r : i32
        """,
    )


def test_operands_of_reductions_stay_with_them() -> None:
    stays(
        dce,
        "%t: tensor<8xf32>, %x: f32",
        """
        %k = arith.negf %x : f32
        %s = "tt.reduce"(%t) <{axis = 0 : i32}> ({
        ^bb0(%l: f32, %m: f32):
          %o = arith.addf %l, %k : f32
          tt.reduce.return %o : f32
        }) : (tensor<8xf32>) -> f32
        tt.return %s : f32
        """,
    )


def test_the_work_for_nested_conditionals_grows_as_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_linear_in_nesting(dce, importlib.import_module("kernelpack.ir.rewrite"), "definition", monkeypatch)
