"""unroll_loops: loops that ask for it do several trips in one; the trips left over follow, and results stay the same."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.compiler.stages import optimise_ttir
from kernelpack.ir.interpret import launch
from kernelpack.passes.unroll_loops import unroll_loops
from tests.frontend.compiling import compile_kernel
from tests.passes.before_after import check, stays


def test_trips_follow_each_other_and_the_rest_comes_after() -> None:
    check(
        unroll_loops,
        "%p: !tt.ptr<i32>, %lower: i32, %upper: i32, %step: i32",
        """
        %r = scf.for %i = %lower to %upper step %step iter_args(%x = %lower) -> (i32)  : i32 {
          %a = arith.muli %x, %i : i32
          tt.store %p, %a : !tt.ptr<i32>
          scf.yield %a : i32
        } {tt.loop_unroll_factor = 2 : i32, tt.num_stages = 4 : i32}
        tt.return %r : i32
        """,
        """
        %c2_i32 = arith.constant 2 : i32
        %0 = arith.muli %step, %c2_i32 : i32
        %1 = arith.cmpi slt, %lower, %upper : i32
        %2 = arith.subi %upper, %lower : i32
        %3 = arith.divui %2, %0 : i32
        %4 = arith.muli %3, %0 : i32
        %c0_i32 = arith.constant 0 : i32
        %5 = arith.select %1, %4, %c0_i32 : i32
        %6 = arith.addi %lower, %5 : i32
        %r = scf.for %i = %lower to %6 step %0 iter_args(%x = %lower) -> (i32)  : i32 {
          %a = arith.muli %x, %i : i32
          tt.store %p, %a : !tt.ptr<i32>
          %7 = arith.addi %i, %step : i32
          %a_0 = arith.muli %a, %7 : i32
          tt.store %p, %a_0 : !tt.ptr<i32>
          scf.yield %a_0 : i32
        } {tt.num_stages = 4 : i32}
        %r_0 = scf.for %i_0 = %6 to %upper step %step iter_args(%x_0 = %r) -> (i32)  : i32 {
          %a_1 = arith.muli %x_0, %i_0 : i32
          tt.store %p, %a_1 : !tt.ptr<i32>
          scf.yield %a_1 : i32
        } {tt.num_stages = 1 : i32}
        tt.return %r_0 : i32
        """,
    )


def test_loops_that_do_not_ask_stay() -> None:
    stays(
        unroll_loops,
        "%p: !tt.ptr<i32>, %n: i32",
        """
        scf.for %i = %n to %n step %n  : i32 {
          tt.store %p, %i : !tt.ptr<i32>
        } {tt.num_stages = 2 : i32}
        """,
    )


@kp.jit
def digits(out, begin, end, STEP: tl.constexpr, OUTER: tl.constexpr, INNER: tl.constexpr):
    value = 0
    for i in tl.range(begin, end, STEP, loop_unroll_factor=OUTER):
        for j in tl.range(0, 3, loop_unroll_factor=INNER):
            value = value * 3 + i + j
    tl.store(out, value)


@pytest.mark.parametrize(("begin", "end", "step"), [(0, 12, 1), (2, 13, 3), (5, 5, 1), (7, 1, 2), (-4, 1, 1), (3, 4, 8)])
@pytest.mark.parametrize(("outer", "inner"), [(1, 2), (2, 1), (3, 2), (4, 8)])
def test_results_stay_the_same(begin: int, end: int, step: int, outer: int, inner: int) -> None:
    expected = 0
    for i in range(begin, end, step):
        for j in range(3):
            expected = expected * 3 + i + j
    wrapped = (expected + (1 << 31)) % (1 << 32) - (1 << 31)
    out = torch.zeros(1, dtype=torch.int32)
    module = compile_kernel(digits, out="*i32", begin="i32", end="i32", STEP=step, OUTER=outer, INNER=inner)
    optimise_ttir(module)
    assert "loop_unroll_factor" not in str(module)
    launch(module, 1, [out, begin, end])
    assert out.item() == wrapped
