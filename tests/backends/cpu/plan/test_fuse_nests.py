"""Which roots share a nest: those of one domain that find at a place, after the nest's own, what they would find after the nest."""

from __future__ import annotations

import kernelpack as kp
import kernelpack.language as tl
from tests.backends.cpu.plan.plans import plan, same_text


@kp.jit
def exchange(x, y, S: tl.constexpr):
    i = tl.arange(0, S)
    to_x, to_y = x + i, y + i
    a, b = tl.load(to_x), tl.load(to_y)
    tl.store(to_x, b)
    tl.store(to_y, a)


def test_loads_of_both_and_then_stores_of_both_are_one_nest() -> None:
    same_text(
        plan(exchange, S=32),
        """
        nest 32, lanes 0
          store %b to %to_x
          store %a to %to_y
        """,
    )


@kp.jit
def other_extents(x, y, S: tl.constexpr):
    to_x, to_y = x + tl.arange(0, S), y + tl.arange(0, 2 * S)
    tl.store(to_x, 0.0)
    tl.store(to_y, 1.0)


def test_tiles_of_other_extents_have_a_nest_of_their_own() -> None:
    same_text(
        plan(other_extents, S=32),
        """
        nest 32, lanes 0
          store 0.0 to %to_x
        nest 64, lanes 0
          store 1.0 to %to_y
        """,
    )


@kp.jit
def other_lanes(x, y, S: tl.constexpr):
    i = tl.arange(0, S)
    to_x, to_y = x + i[None, :] + i[:, None] * S, y + i[:, None] + i[None, :] * S
    tl.store(to_x, 0.0)
    tl.store(to_y, 1.0)


def test_tiles_with_other_lanes_have_a_nest_of_their_own() -> None:
    same_text(
        plan(other_lanes, S=32),
        """
        nest 32x32, lanes 1
          store 0.0 to %to_x
        nest 32x32, lanes 0
          store 1.0 to %to_y
        """,
    )


@kp.jit
def past_a_scalar(x, y, n, S: tl.constexpr):
    i = tl.arange(0, S)
    to_x, to_y = x + i, y + i
    tl.store(to_x, 0.0)
    m = n * n
    tl.store(to_y, 1.0)
    row = y + m
    to_row = row + i
    tl.store(to_row, 2.0)


def test_a_root_joins_a_nest_before_scalars_that_it_does_not_read() -> None:
    same_text(
        plan(past_a_scalar, S=32, n="i32"),
        """
        nest 32, lanes 0
          store 0.0 to %to_x
          store 1.0 to %to_y
        %m <- arith.muli %n, %n
        %row <- tt.addptr %y, %m
        nest 32, lanes 0
          store 2.0 to %to_row
        """,
    )


@kp.jit
def past_a_barrier(x, y, S: tl.constexpr):
    to_x, to_y = x + tl.arange(0, S), y + tl.arange(0, S)
    tl.store(to_x, 0.0)
    tl.debug_barrier()
    tl.store(to_y, 1.0)


def test_nothing_moves_before_a_barrier() -> None:
    same_text(
        plan(past_a_barrier, S=32),
        """
        nest 32, lanes 0
          store 0.0 to %to_x
        gpu.barrier
        nest 32, lanes 0
          store 1.0 to %to_y
        """,
    )


@kp.jit
def spread(x, out, S: tl.constexpr):
    a = tl.load(x + tl.arange(0, S))
    low = tl.min(a)
    high = tl.max(a)
    above = a - low
    total = tl.sum(above)
    tl.store(out, high * total)


def test_a_reduction_waits_for_another_one_that_it_reads() -> None:
    same_text(
        plan(spread, S=32),
        """
        nest 32, lanes 0
          %low <- reduce axis 0 of %a
          %high <- reduce axis 0 of %a
        nest 32, lanes 0
          %total <- reduce axis 0 of %above
        %7 <- arith.mulf %high, %total
        tt.store %out, %7
        """,
    )


@kp.jit
def both_ways(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i[:, None] * S + i[None, :])
    down, along = tl.sum(a, 0), tl.sum(a, 1)
    both, target = down + along, out + i
    tl.store(target, both)


def test_reductions_along_other_axes_have_a_nest_of_their_own() -> None:
    same_text(
        plan(both_ways, S=32),
        """
        buffer down: 32xf32, lanes 0, holds %down
        buffer along: 32xf32, lanes 0, holds %along
        nest 32x32, lanes 1
          down <- reduce axis 0 of %a
        nest 32x32, lanes 1
          along <- reduce axis 1 of %a
        nest 32, lanes 0
          store %both to %target
        """,
    )


@kp.jit
def loaded_later(x, y, out, S: tl.constexpr):
    i = tl.arange(0, S)
    to_x, target = x + i, out + i
    tl.store(to_x, 0.0)
    b = tl.load(y + i)
    tl.store(target, b)


def test_a_load_stays_after_the_stores_before_it() -> None:
    same_text(
        plan(loaded_later, S=32),
        """
        nest 32, lanes 0
          store 0.0 to %to_x
        nest 32, lanes 0
          store %b to %target
        """,
    )


@kp.jit
def shifted_by_one(x, S: tl.constexpr):
    i = tl.arange(0, S)
    here, there = x + i, x + i + 1
    tl.store(here, 0.0)
    tl.store(there, 1.0)


@kp.jit
def shifted_by_all(x, S: tl.constexpr):
    i = tl.arange(0, S)
    here, there = x + i, x + i + S
    tl.store(here, 0.0)
    tl.store(there, 1.0)


def test_the_last_of_stores_to_one_element_comes_last() -> None:
    same_text(
        plan(shifted_by_one, S=32),
        """
        nest 32, lanes 0
          store 0.0 to %here
        nest 32, lanes 0
          store 1.0 to %there
        """,
    )
    same_text(
        plan(shifted_by_all, S=32),
        """
        nest 32, lanes 0
          store 0.0 to %here
          store 1.0 to %there
        """,
    )


@kp.jit
def two_scans(x, y, S: tl.constexpr):
    i = tl.arange(0, S)
    to_x, to_y = x + i, y + i
    sums = tl.cumsum(tl.load(to_x))
    others = tl.cumsum(tl.load(to_y))
    tl.store(to_x, sums)
    tl.store(to_y, others)


def test_scans_share_a_nest_with_nothing() -> None:
    same_text(
        plan(two_scans, S=32),
        """
        buffer sums: 32xf32, lanes 0, holds %sums
        buffer others: 32xf32, lanes 0, holds %others
        nest 32, lanes 0
          sums <- scan axis 0 of %2
        nest 32, lanes 0
          others <- scan axis 0 of %4
        nest 32, lanes 0
          store %sums to %to_x
          store %others to %to_y
        """,
    )


@kp.jit
def turned(x, y, z, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i[:, None] * S + i[None, :])
    rows, columns = y + i[:, None] * S + i[None, :], z + i[:, None] + i[None, :] * S
    tl.store(rows, a)
    tl.store(columns, a)


def test_a_store_that_turns_blocks_shares_a_nest_with_nothing() -> None:
    same_text(
        plan(turned, S=32),
        """
        buffer a: 32x32xf32, lanes 1, holds %a
        nest 32x32, lanes 1
          a <- %a
          store %a to %rows
        nest 32x32, lanes 1
          store %a to %columns
        """,
    )


@kp.jit
def flipped(x, y, z, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.exp(tl.load(x + i))
    b = tl.flip(a)
    target, other = y + i, z + i
    tl.store(target, a)
    tl.store(other, b)


def test_a_tile_that_is_read_elsewhere_is_whole_before_it_is_read() -> None:
    same_text(
        plan(flipped, S=32),
        """
        buffer a: 32xf32, lanes 0, holds %a
        nest 32, lanes 0
          a <- %a
          store %a to %target
        nest 32, lanes 0
          store %b to %other
        """,
    )
