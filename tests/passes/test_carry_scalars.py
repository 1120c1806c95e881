"""Tiles of pointers and indices that a loop advances evenly become the first tile and a carried scalar; others stay."""

from __future__ import annotations

from functools import partial

import pytest

from kernelpack.passes.carry_scalars import carry_scalars
from tests.passes.before_after import check, stays

ARGUMENTS = "%p: tensor<32x!tt.ptr<f32>>, %x: tensor<32xi32>, %t: tensor<32xi32>, %k: i32, %n: i32, %zero: i32, %one: i32, %f: tensor<32xf32>"


def test_a_tile_of_pointers_that_steps_by_a_scalar_carries_a_count_of_elements() -> None:
    check(
        carry_scalars,
        ARGUMENTS,
        """
        %ks = tt.splat %k : i32 -> tensor<32xi32>
        %r = scf.for %i = %zero to %n step %one iter_args(%q = %p) -> (tensor<32x!tt.ptr<f32>>)  : i32 {
          %v = tt.load %q : tensor<32x!tt.ptr<f32>>
          %next = tt.addptr %q, %ks : tensor<32x!tt.ptr<f32>>, tensor<32xi32>
          scf.yield %next : tensor<32x!tt.ptr<f32>>
        }
        %w = tt.load %r : tensor<32x!tt.ptr<f32>>
        """,
        """
        %ks = tt.splat %k : i32 -> tensor<32xi32>
        %0 = arith.extsi %k : i32 to i64
        %c0_i64 = arith.constant 0 : i64
        %r = scf.for %i = %zero to %n step %one iter_args(%q = %c0_i64) -> (i64)  : i32 {
          %1 = tt.splat %q : i64 -> tensor<32xi64>
          %2 = tt.addptr %p, %1 : tensor<32x!tt.ptr<f32>>, tensor<32xi64>
          %v = tt.load %2 : tensor<32x!tt.ptr<f32>>
          %next = tt.addptr %2, %ks : tensor<32x!tt.ptr<f32>>, tensor<32xi32>
          %3 = arith.addi %q, %0 : i64
          scf.yield %3 : i64
        }
        %4 = tt.splat %r : i64 -> tensor<32xi64>
        %5 = tt.addptr %p, %4 : tensor<32x!tt.ptr<f32>>, tensor<32xi64>
        %w = tt.load %5 : tensor<32x!tt.ptr<f32>>
        """,
    )


def test_a_constant_step_is_a_constant_scalar() -> None:
    check(
        carry_scalars,
        ARGUMENTS,
        """
        %r = scf.for %i = %zero to %n step %one iter_args(%q = %x) -> (tensor<32xi32>)  : i32 {
          %cst = arith.constant dense<32> : tensor<32xi32>
          %next = arith.addi %q, %cst : tensor<32xi32>
          scf.yield %next : tensor<32xi32>
        }
        """,
        """
        %c32_i32 = arith.constant 32 : i32
        %c0_i32 = arith.constant 0 : i32
        %r = scf.for %i = %zero to %n step %one iter_args(%q = %c0_i32) -> (i32)  : i32 {
          %0 = tt.splat %q : i32 -> tensor<32xi32>
          %1 = arith.addi %x, %0 : tensor<32xi32>
          %cst = arith.constant dense<32> : tensor<32xi32>
          %next = arith.addi %1, %cst : tensor<32xi32>
          %2 = arith.addi %q, %c32_i32 : i32
          scf.yield %2 : i32
        }
        """,
    )


def test_a_tile_of_steps_is_multiplied_by_a_carried_count() -> None:
    check(
        carry_scalars,
        ARGUMENTS,
        """
        %r = scf.for %i = %zero to %n step %one iter_args(%q = %x) -> (tensor<32xi32>)  : i32 {
          %next = arith.addi %t, %q : tensor<32xi32>
          scf.yield %next : tensor<32xi32>
        }
        """,
        """
        %c1_i32 = arith.constant 1 : i32
        %c0_i32 = arith.constant 0 : i32
        %r = scf.for %i = %zero to %n step %one iter_args(%q = %c0_i32) -> (i32)  : i32 {
          %0 = tt.splat %q : i32 -> tensor<32xi32>
          %1 = arith.muli %0, %t : tensor<32xi32>
          %2 = arith.addi %x, %1 : tensor<32xi32>
          %next = arith.addi %t, %2 : tensor<32xi32>
          %3 = arith.addi %q, %c1_i32 : i32
          scf.yield %3 : i32
        }
        """,
    )


def test_a_scalar_that_differs_from_iteration_to_iteration_is_summed() -> None:
    check(
        partial(carry_scalars, only_offsets=True),
        ARGUMENTS,
        """
        %r = scf.for %i = %zero to %n step %one iter_args(%q = %x) -> (tensor<32xi32>)  : i32 {
          %step = arith.muli %i, %k : i32
          %steps = tt.splat %step : i32 -> tensor<32xi32>
          %next = arith.addi %q, %steps : tensor<32xi32>
          scf.yield %next : tensor<32xi32>
        }
        """,
        """
        %c0_i32 = arith.constant 0 : i32
        %r = scf.for %i = %zero to %n step %one iter_args(%q = %c0_i32) -> (i32)  : i32 {
          %0 = tt.splat %q : i32 -> tensor<32xi32>
          %1 = arith.addi %x, %0 : tensor<32xi32>
          %step = arith.muli %i, %k : i32
          %steps = tt.splat %step : i32 -> tensor<32xi32>
          %next = arith.addi %1, %steps : tensor<32xi32>
          %2 = arith.addi %q, %step : i32
          scf.yield %2 : i32
        }
        """,
    )


def test_the_sum_of_a_scalar_that_differs_is_widened_where_it_is_computed() -> None:
    check(
        carry_scalars,
        ARGUMENTS,
        """
        %r = scf.for %i = %zero to %n step %one iter_args(%q = %p) -> (tensor<32x!tt.ptr<f32>>)  : i32 {
          %steps = tt.splat %i : i32 -> tensor<32xi32>
          %next = tt.addptr %q, %steps : tensor<32x!tt.ptr<f32>>, tensor<32xi32>
          scf.yield %next : tensor<32x!tt.ptr<f32>>
        }
        """,
        """
        %c0_i64 = arith.constant 0 : i64
        %r = scf.for %i = %zero to %n step %one iter_args(%q = %c0_i64) -> (i64)  : i32 {
          %0 = tt.splat %q : i64 -> tensor<32xi64>
          %1 = tt.addptr %p, %0 : tensor<32x!tt.ptr<f32>>, tensor<32xi64>
          %steps = tt.splat %i : i32 -> tensor<32xi32>
          %next = tt.addptr %1, %steps : tensor<32x!tt.ptr<f32>>, tensor<32xi32>
          %2 = arith.extsi %i : i32 to i64
          %3 = arith.addi %q, %2 : i64
          scf.yield %3 : i64
        }
        """,
    )


@pytest.mark.parametrize(
    ("carried", "kind", "next_one"),
    [
        ("%p", "tensor<32x!tt.ptr<f32>>", "tt.addptr %q, %steps : tensor<32x!tt.ptr<f32>>, tensor<32xi32>"),
        ("%x", "tensor<32xi32>", "arith.addi %q, %t : tensor<32xi32>"),
    ],
)
def test_pointers_and_tiles_of_steps_stay_where_only_offsets_are_wanted(carried: str, kind: str, next_one: str) -> None:
    stays(
        partial(carry_scalars, only_offsets=True),
        ARGUMENTS,
        f"""
        %steps = tt.splat %k : i32 -> tensor<32xi32>
        %r = scf.for %i = %zero to %n step %one iter_args(%q = {carried}) -> ({kind})  : i32 {{
          %next = {next_one}
          scf.yield %next : {kind}
        }}
        """,
    )


@pytest.mark.parametrize(
    ("carried", "kind", "next_one"),
    [
        ("%x", "tensor<32xi32>", "arith.muli %q, %t"),
        ("%x", "tensor<32xi32>", "arith.addi %q, %q"),
        ("%x", "tensor<32xi32>", "arith.subi %q, %t"),
        ("%f", "tensor<32xf32>", "arith.addf %q, %f"),
        ("%k", "i32", "arith.addi %q, %k"),
    ],
)
def test_what_does_not_advance_evenly_is_carried_as_it_is(carried: str, kind: str, next_one: str) -> None:
    stays(
        carry_scalars,
        ARGUMENTS,
        f"""
        %r = scf.for %i = %zero to %n step %one iter_args(%q = {carried}) -> ({kind})  : i32 {{
          %varies = tt.splat %i : i32 -> tensor<32xi32>
          tt.store %p, %f : tensor<32x!tt.ptr<f32>>
          %u = arith.addi %varies, %varies : tensor<32xi32>
          %next = {next_one} : {kind}
          scf.yield %next : {kind}
        }}
        """,
    )


def test_tiles_that_change_places_are_carried_as_they_are() -> None:
    stays(
        carry_scalars,
        ARGUMENTS,
        """
        %r:2 = scf.for %i = %zero to %n step %one iter_args(%q = %x, %u = %t) -> (tensor<32xi32>, tensor<32xi32>)  : i32 {
          %next = arith.addi %q, %x : tensor<32xi32>
          scf.yield %u, %next : tensor<32xi32>, tensor<32xi32>
        }
        """,
    )
