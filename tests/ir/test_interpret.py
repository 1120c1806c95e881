"""The interpreter: arguments and grids are checked, control flow runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernelpack.errors import LaunchError, StepLimitError
from kernelpack.ir.interpret import launch
from tests.ir.examples import ADD, function, parse

# ---- arguments and grids ----


def test_grid_is_x_fastest_and_order_is_respected() -> None:
    text = function(
        """
        %one = arith.constant 1 : i32
        %at = tt.atomic_rmw add, acq_rel, gpu, %count, %one : (!tt.ptr<i32>, i32) -> i32
        %x = tt.get_program_id x : i32
        %y = tt.get_program_id y : i32
        %z = tt.get_program_id z : i32
        %nx = tt.get_num_programs x : i32
        %ny = tt.get_num_programs y : i32
        %a = arith.muli %z, %ny : i32
        %b = arith.addi %a, %y : i32
        %c = arith.muli %b, %nx : i32
        %d = arith.addi %c, %x : i32
        %p = tt.addptr %out, %at : !tt.ptr<i32>, i32
        tt.store %p, %d : !tt.ptr<i32>
        """,
        "%count: !tt.ptr<i32>, %out: !tt.ptr<i32>",
    )
    for order in (None, list(reversed(range(24)))):
        count, out = np.zeros(1, np.int32), np.full(24, -1, np.int32)
        launch(parse(text), (2, 3, 4), [count, out], order=order)
        assert out.tolist() == list(order or range(24))


def test_empty_grid_runs_nothing() -> None:
    out = np.zeros(19, np.float32)
    launch(parse(ADD), (0, 5), [np.ones(19, np.float32), out, 19])
    assert not out.any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([np.zeros(1, np.float32)], "kernel takes 3 arguments, got 1"),
        ([np.zeros(1), np.zeros(1, np.float32), 1], "argument x holds float64, the kernel takes !tt.ptr<f32>"),
        ([torch.zeros(1, dtype=torch.int32), np.zeros(1, np.float32), 1], "argument x holds int32"),
        ([torch.zeros(1, device="meta"), np.zeros(1, np.float32), 1], "argument x is on meta"),
        ([[1.0], np.zeros(1, np.float32), 1], "argument x must be an array or a tensor for !tt.ptr<f32>, is list"),
        ([None, None, 1.5], "argument n must be a number for i32, is 1.5"),
        ([None, None, 1 << 40], "argument n must be a number for i32"),
        ([None, None, np.zeros(3)], "argument n must be a number for i32"),
    ],
)
def test_refuses_arguments_that_do_not_fit(arguments: list[object], message: str) -> None:
    with pytest.raises(LaunchError) as caught:
        launch(parse(ADD), 1, arguments)
    assert message in caught.value.message


def test_scalars_take_their_type() -> None:
    text = function(
        """
        tt.store %pf, %f : !tt.ptr<bf16>
        tt.store %pi, %i : !tt.ptr<i8>
        tt.store %pb, %b : !tt.ptr<i1>
        """,
        "%pf: !tt.ptr<bf16>, %pi: !tt.ptr<i8>, %pb: !tt.ptr<i1>, %f: bf16, %i: i8, %b: i1",
    )
    f, i, b = torch.zeros(1, dtype=torch.bfloat16), np.zeros(1, np.int8), np.zeros(1, np.bool_)
    launch(parse(text), 1, [f, i, b, 0.1, 255, True])
    assert f.item() == torch.tensor(0.1).bfloat16().item()
    assert i[0] == -1
    assert b[0]


@pytest.mark.parametrize("grid", [(), (1, 1, 1, 1), (-1,), -1])
def test_refuses_grids(grid: object) -> None:
    with pytest.raises(LaunchError, match="a grid has one to three extents"):
        launch(parse(function("")), grid, [])


# ---- control flow ----


def run_ints(body: str, *arguments: int, size: int = 8) -> list[int]:
    """Runs a body that stores i32 through %out and returns what it wrote."""
    out = np.zeros(size, np.int32)
    names = ", ".join(f"%a{index}: i32" for index in range(len(arguments)))
    launch(parse(function(body, f"%out: !tt.ptr<i32>{', ' if names else ''}{names}")), 1, [out, *arguments])
    return out.tolist()


_SUM = """
%zero = arith.constant 0 : i32
%s, %n = scf.for %i = %a0 to %a1 step %a2 iter_args(%x = %zero, %y = %zero) -> (i32, i32)  : i32 {
  %x1 = arith.addi %x, %i : i32
  %one = arith.constant 1 : i32
  %y1 = arith.addi %y, %one : i32
  scf.yield %x1, %y1 : i32, i32
}
tt.store %out, %s : !tt.ptr<i32>
%one_ = arith.constant 1 : i32
%p = tt.addptr %out, %one_ : !tt.ptr<i32>, i32
tt.store %p, %n : !tt.ptr<i32>
"""


@pytest.mark.parametrize("bounds", [(0, 10, 3), (5, 5, 1), (7, 3, 1), (-4, 4, 2), (0x7FFFFFF0, 0x7FFFFFFF, 10)])
def test_for_counts_like_range(bounds: tuple[int, int, int]) -> None:
    total = (sum(range(*bounds)) + (1 << 31)) % (1 << 32) - (1 << 31)
    assert run_ints(_SUM, *bounds)[:2] == [total, len(range(*bounds))]


@pytest.mark.parametrize("step", [0, -1])
def test_for_refuses_steps_that_are_not_positive(step: int) -> None:
    with pytest.raises(LaunchError, match="the step of a loop must be positive"):
        run_ints(_SUM, 0, 10, step)


@pytest.mark.parametrize("value", [3, 30])
def test_if(value: int) -> None:
    body = """
    %ten = arith.constant 10 : i32
    %c = arith.cmpi slt, %a0, %ten : i32
    %r = scf.if %c -> (i32) {
      scf.yield %ten : i32
    } else {
      %d = arith.addi %a0, %ten : i32
      scf.yield %d : i32
    }
    scf.if %c {
      tt.store %out, %r : !tt.ptr<i32>
    }
    """
    assert run_ints(body, value)[0] == (10 if value < 10 else 0)


@pytest.mark.parametrize(("start", "expected"), [(1, [64, 6]), (50, [50, 0])])
def test_while(start: int, expected: list[int]) -> None:
    body = """
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %limit = arith.constant 50 : i32
    %x, %n = scf.while (%v = %a0, %k = %zero) : (i32, i32) -> (i32, i32) {
      %c = arith.cmpi slt, %v, %limit : i32
      scf.condition(%c) %v, %k : i32, i32
    } do {
    ^bb0(%w: i32, %j: i32):
      %d = arith.addi %w, %w : i32
      %l = arith.addi %j, %one : i32
      scf.yield %d, %l : i32, i32
    }
    tt.store %out, %x : !tt.ptr<i32>
    %p = tt.addptr %out, %one : !tt.ptr<i32>, i32
    tt.store %p, %n : !tt.ptr<i32>
    """
    assert run_ints(body, start)[:2] == expected


def test_calls() -> None:
    text = """
    tt.func public @kernel(%out: !tt.ptr<i32>, %n: i32) {
      %a, %b = tt.call @both(%n) : (i32) -> (i32, i32)
      %c = arith.muli %a, %b : i32
      tt.store %out, %c : !tt.ptr<i32>
      tt.return
    }
    tt.func private @both(%n: i32) -> (i32, i32) {
      %one = arith.constant 1 : i32
      %m = arith.addi %n, %one : i32
      tt.return %n, %m : i32, i32
    }
    """
    out = np.zeros(1, np.int32)
    launch(parse(text), 1, [out, 6])
    assert out[0] == 42


# ---- limits ----


def test_a_launch_ends_after_as_many_operations_as_it_may_run() -> None:
    text = function(
        """
        %zero = arith.constant 0 : i32
        %one = arith.constant 1 : i32
        scf.for %i = %zero to %n step %one  : i32 {
          tt.store %out, %i : !tt.ptr<i32>
        }
        """,
        "%out: !tt.ptr<i32>, %n: i32",
    )
    out = np.zeros(1, np.int32)
    launch(parse(text), 2, [out, 10], steps=100)  # two programs of 4 operations and 10 trips of 2
    assert out[0] == 9
    with pytest.raises(StepLimitError, match="no end after 47 operations"):
        launch(parse(text), 2, [out, 10], steps=47)
