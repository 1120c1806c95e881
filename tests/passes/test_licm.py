"""licm: invariant operations leave loops; what depends on the trip, touches memory or may trap stays."""

from __future__ import annotations

from kernelpack.passes import licm
from tests.passes.before_after import check, stays


def test_chains_leave_nested_loops() -> None:
    check(
        licm,
        "%p: !tt.ptr<i32>, %n: i32",
        """
        scf.for %i = %n to %n step %n  : i32 {
          scf.for %j = %n to %n step %n  : i32 {
            %a = arith.addi %n, %n : i32
            %b = arith.muli %a, %n : i32
            %c = arith.addi %i, %b : i32
            %d = arith.addi %j, %c : i32
            tt.store %p, %d : !tt.ptr<i32>
          }
        }
        """,
        """
        %a = arith.addi %n, %n : i32
        %b = arith.muli %a, %n : i32
        scf.for %i = %n to %n step %n  : i32 {
          %c = arith.addi %i, %b : i32
          scf.for %j = %n to %n step %n  : i32 {
            %d = arith.addi %j, %c : i32
            tt.store %p, %d : !tt.ptr<i32>
          }
        }
        """,
    )


def test_carried_values_vary_loads_stay() -> None:
    stays(
        licm,
        "%p: !tt.ptr<i32>, %n: i32",
        """
        %r = scf.for %i = %n to %n step %n iter_args(%x = %n) -> (i32)  : i32 {
          %a = arith.addi %x, %n : i32
          %v = tt.load %p : !tt.ptr<i32>
          %b = arith.addi %a, %v : i32
          scf.yield %b : i32
        }
        tt.return %r : i32
        """,
    )


def test_reductions_and_whole_branches_leave() -> None:
    check(
        licm,
        "%p: !tt.ptr<f32>, %n: i32, %t: tensor<8xf32>, %c: i1",
        """
        scf.for %i = %n to %n step %n  : i32 {
          %s = "tt.reduce"(%t) <{axis = 0 : i32}> ({
          ^bb0(%l: f32, %m: f32):
            %o = arith.addf %l, %m : f32
            tt.reduce.return %o : f32
          }) : (tensor<8xf32>) -> f32
          %r = scf.if %c -> (f32) {
            scf.yield %s : f32
          } else {
            %k = arith.negf %s : f32
            scf.yield %k : f32
          }
          tt.store %p, %r : !tt.ptr<f32>
        }
        """,
        """
        %s = "tt.reduce"(%t) <{axis = 0 : i32}> ({
        ^bb0(%l: f32, %m: f32):
          %o = arith.addf %l, %m : f32
          tt.reduce.return %o : f32
        }) : (tensor<8xf32>) -> f32
        %r = scf.if %c -> (f32) {
          scf.yield %s : f32
        } else {
          %k = arith.negf %s : f32
          scf.yield %k : f32
        }
        scf.for %i = %n to %n step %n  : i32 {
          tt.store %p, %r : !tt.ptr<f32>
        }
        """,
    )


def test_branches_that_use_the_trip_stay() -> None:
    stays(
        licm,
        "%p: !tt.ptr<i32>, %n: i32, %c: i1",
        """
        scf.for %i = %n to %n step %n  : i32 {
          %r = scf.if %c -> (i32) {
            scf.yield %i : i32
          } else {
            scf.yield %n : i32
          }
          tt.store %p, %r : !tt.ptr<i32>
        }
        """,
    )


def test_divisions_leave_only_if_they_cannot_trap() -> None:
    check(
        licm,
        "%p: !tt.ptr<i32>, %n: i32",
        """
        %c3 = arith.constant 3 : i32
        %c0 = arith.constant 0 : i32
        scf.for %i = %n to %n step %n  : i32 {
          %a = arith.divsi %n, %c3 : i32
          %b = arith.divsi %c3, %n : i32
          %c = arith.remui %n, %c0 : i32
          %d = arith.addi %a, %b : i32
          %e = arith.addi %d, %c : i32
          tt.store %p, %e : !tt.ptr<i32>
        }
        """,
        """
        %c3 = arith.constant 3 : i32
        %c0 = arith.constant 0 : i32
        %a = arith.divsi %n, %c3 : i32
        scf.for %i = %n to %n step %n  : i32 {
          %b = arith.divsi %c3, %n : i32
          %c = arith.remui %n, %c0 : i32
          %d = arith.addi %a, %b : i32
          %e = arith.addi %d, %c : i32
          tt.store %p, %e : !tt.ptr<i32>
        }
        """,
    )


def test_both_parts_of_a_while() -> None:
    check(
        licm,
        "%n: i32",
        """
        %r = scf.while (%x = %n) : (i32) -> i32 {
          %a = arith.addi %n, %n : i32
          %c = arith.cmpi slt, %x, %a : i32
          scf.condition(%c) %x : i32
        } do {
        ^bb0(%y: i32):
          %b = arith.muli %n, %n : i32
          %z = arith.addi %y, %b : i32
          scf.yield %z : i32
        }
        tt.return %r : i32
        """,
        """
        %a = arith.addi %n, %n : i32
        %b = arith.muli %n, %n : i32
        %r = scf.while (%x = %n) : (i32) -> i32 {
          %c = arith.cmpi slt, %x, %a : i32
          scf.condition(%c) %x : i32
        } do {
        ^bb0(%y: i32):
          %z = arith.addi %y, %b : i32
          scf.yield %z : i32
        }
        tt.return %r : i32
        """,
    )


def test_a_yielded_invariant_leaves() -> None:
    check(
        licm,
        "%n: i32",
        """
        %r = scf.for %i = %n to %n step %n iter_args(%x = %n) -> (i32)  : i32 {
          %a = arith.addi %n, %n : i32
          scf.yield %a : i32
        }
        tt.return %r : i32
        """,
        """
        %a = arith.addi %n, %n : i32
        %r = scf.for %i = %n to %n step %n iter_args(%x = %n) -> (i32)  : i32 {
          scf.yield %a : i32
        }
        tt.return %r : i32
        """,
    )
