"""What the review of a plan finds: tiles to keep in buffers, loads to do before stores, carried tiles to protect. Each lesson alone."""

from __future__ import annotations

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.language.extra import libdevice
from tests.backends.cpu.plan.plans import check_lesson, learns_nothing, plan, same_text

# ---- keep_shared ----


@kp.jit
def softmax(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    e = tl.exp(a)
    total = tl.sum(e)
    share = e / total
    target = out + i
    tl.store(target, share)


def test_a_costly_tile_of_two_nests_is_kept_and_not_what_it_is_made_of() -> None:
    check_lesson(
        "keep_shared",
        softmax,
        """
        nest 32, lanes 0
          %total <- reduce axis 0 of %e
        nest 32, lanes 0
          store %share to %target
        """,
        "keep %e, lanes 0",
        """
        buffer e: 32xf32, lanes 0, holds %e
        nest 32, lanes 0
          e <- %e
          %total <- reduce axis 0 of %e
        nest 32, lanes 0
          store %share to %target
        """,
        S=32,
    )


@kp.jit
def of_libdevice(x, out, S: tl.constexpr, EXP: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    e = libdevice.exp(a) if EXP else libdevice.fma(a, a, a)
    tl.store(out + i, e - tl.sum(e))


def test_functions_of_libdevice_cost_what_the_operations_cost_that_compute_them() -> None:
    assert "buffer e: 32xf32" in plan(of_libdevice, S=32, EXP=True)
    assert "buffer e: 32xf32" not in plan(of_libdevice, S=32, EXP=False)


@kp.jit
def minus_the_sum(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i) * 2.0
    tl.store(out + i, a - tl.sum(a))


@kp.jit
def nine_instructions(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    root = tl.sqrt(tl.load(x + i))
    tl.store(out + i, root - tl.sum(root))


@kp.jit
def seven_instructions(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    power = a * a * a * a * a
    tl.store(out + i, power - tl.sum(power))


def test_a_tile_is_costly_from_nine_instructions_an_element_on() -> None:
    """A load counts three, a square root six, a product one; the load is counted once."""
    check_lesson("keep_shared", nine_instructions, None, "keep %root, lanes 0", None, S=32)
    learns_nothing("keep_shared", seven_instructions, S=32)


def test_a_cheap_tile_of_two_nests_is_computed_by_both() -> None:
    learns_nothing("keep_shared", minus_the_sum, S=32)


@kp.jit
def counted(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    e = tl.exp(tl.load(x + i))
    inside = e > 1.0
    tl.store(out + i, tl.sum(inside.to(tl.int32)), mask=inside)


def test_masks_stay_in_registers_and_what_they_compare_is_kept() -> None:
    check_lesson("keep_shared", counted, None, "keep %e, lanes 0", None, S=32)


# ---- keep_crossing ----


@kp.jit
def copied_often(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    first = tl.load(x + i)
    double = first * 2.0
    for k in range(n):
        row = out + k * S
        target = row + i
        tl.store(target, double)


def test_a_load_before_a_loop_is_not_repeated_by_its_iterations() -> None:
    check_lesson(
        "keep_crossing",
        copied_often,
        """
        for %k
          %2 <- arith.muli %k, 32
          %row <- tt.addptr %out, %2
          nest 32, lanes 0
            store %double to %target
        """,
        "keep %double, lanes 0",
        """
        buffer double: 32xf32, lanes 0, holds %double
        nest 32, lanes 0
          double <- %double
        for %k
          %2 <- arith.muli %k, 32
          %row <- tt.addptr %out, %2
          nest 32, lanes 0
            store %double to %target
        """,
        S=32,
        n="i32",
    )


@kp.jit
def scores(x, y, out, n, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    m, k, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    query = tl.load(x + m[:, None] * D + d[None, :])
    for i in range(n):
        keys = tl.load(y + (i * N + k[:, None]) * D + d[None, :])
        tl.store(out + (i * M + m[:, None]) * N + k[None, :], tl.sum(query[:, None, :] * keys[None, :, :], axis=2))


def test_a_tile_that_is_broadcast_in_a_loop_is_kept_as_it_is() -> None:
    assert "buffer query: 4x64xf32, lanes 1" in plan(scores, n="i32", M=4, N=16, D=64)
    assert "4x16x64" not in plan(scores, n="i32", M=4, N=16, D=64).partition("nest")[0]


@kp.jit
def two_sums(x, y, out, other, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    e = tl.exp(tl.load(x + m))
    tl.store(out + m, tl.sum(e[:, None] * tl.load(y + m[:, None] * N + n[None, :]), axis=1))
    tl.debug_barrier()
    tl.store(other + m, tl.max(e[:, None] + tl.load(y + m[:, None] * N + n[None, :]), axis=1))


def test_a_tile_that_two_nests_broadcast_is_kept_as_it_is() -> None:
    text = plan(two_sums, M=16, N=64)
    assert "buffer e: 16xf32" in text
    assert "16x64xf32" not in text.partition("nest")[0]


@kp.jit
def indices(out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    even = i * 2
    for k in range(n):
        tl.store(out + k * S + i, even)


def test_indices_before_a_loop_cost_nothing_to_compute_again() -> None:
    learns_nothing("keep_crossing", indices, S=32, n="i32", out="*i32")


@kp.jit
def in_a_branch(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    first = tl.load(x + i)
    if n > 0:
        tl.store(out + i, first)


def test_a_branch_computes_what_it_needs() -> None:
    learns_nothing("keep_crossing", in_a_branch, S=32, n="i32")


@kp.jit
def rows_and_columns(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    columns = tl.load(x + i[None, :] * S + i[:, None])
    rows = tl.load(x + i[:, None] * S + i[None, :])
    both = columns + rows
    target = out + i[:, None] * S + i[None, :]
    tl.store(target, both)


def test_a_load_against_the_lanes_gets_a_nest_of_its_own_along_memory() -> None:
    check_lesson(
        "keep_crossing",
        rows_and_columns,
        """
        nest 32x32, lanes 0
          store %both to %target
        """,
        "keep %rows, lanes 0",
        """
        buffer rows: 32x32xf32, lanes 0, holds %rows
        nest 32x32, lanes 1
          rows <- %rows
        nest 32x32, lanes 0
          store %both to %target
        """,
        S=32,
    )


@kp.jit
def symmetric(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    cube = tl.load(x + tl.arange(0, 2)[:, None, None] * S * S + i[:, None] * S + i[None, :])
    plane = tl.sum(cube, 0)
    both = plane + tl.trans(plane)
    target = out + i[:, None] * S + i[None, :]
    tl.store(target, both)


def test_a_tile_of_a_buffer_is_kept_once_more_for_lanes_along_its_other_axis() -> None:
    check_lesson(
        "keep_crossing",
        symmetric,
        """
        buffer plane: 32x32xf32, lanes 1, holds %plane
        nest 2x32x32, lanes 2
          plane <- reduce axis 0 of %cube
        nest 32x32, lanes 1
          store %both to %target
        """,
        "keep %plane, lanes 0",
        """
        buffer plane: 32x32xf32, lanes 1, holds %plane
        buffer plane.2: 32x32xf32, lanes 0, holds %plane
        nest 2x32x32, lanes 2
          plane <- reduce axis 0 of %cube
        nest 32x32, lanes 1
          plane.2 <- %plane
        nest 32x32, lanes 1
          store %both to %target
        """,
        S=32,
    )


@kp.jit
def pairs(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    even, odd = tl.split(tl.reshape(a, (S // 2, 2)))
    both = even + odd
    target = out + tl.arange(0, S // 2)
    tl.store(target, both)


def test_the_source_of_a_reshape_that_moves_elements_is_kept() -> None:
    check_lesson("keep_crossing", pairs, None, "keep %a, lanes 0", None, S=32)


@kp.jit
def as_row(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    row = tl.reshape(tl.load(x + i), (1, S))
    tl.store(out + i[None, :], row)


def test_a_reshape_that_adds_an_axis_of_one_needs_no_buffer() -> None:
    learns_nothing("keep_crossing", as_row, S=32)


@kp.jit
def neighbours(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    tl.store(out + i, tl.gather(a, i ^ 1, 0))


def test_the_source_of_a_gather_is_kept() -> None:
    check_lesson("keep_crossing", neighbours, None, "keep %a, lanes 0", None, S=32)


# ---- keep_moved_loads ----


@kp.jit
def read_again(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    source = x + i
    before = tl.load(source)
    total = tl.sum(before)
    cleared = before - total
    tl.store(source, cleared)
    after = tl.load(source)
    target, both = out + i, before + after
    tl.store(target, both)


def test_a_load_before_a_store_is_not_done_after_it() -> None:
    check_lesson(
        "keep_moved_loads",
        read_again,
        """
        nest 32, lanes 0
          %total <- reduce axis 0 of %before
        nest 32, lanes 0
          store %cleared to %source
        nest 32, lanes 0
          store %both to %target
        """,
        "keep %before, lanes 0",
        """
        buffer before: 32xf32, lanes 0, holds %before
        nest 32, lanes 0
          before <- %before
          %total <- reduce axis 0 of %before
        nest 32, lanes 0
          store %cleared to %source
        nest 32, lanes 0
          store %both to %target
        """,
        S=32,
    )


@kp.jit
def past_a_scalar(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    tl.store(x, 1.0)
    tl.store(out + i, a)


def test_a_load_before_the_store_of_a_scalar_is_not_done_after_it() -> None:
    check_lesson("keep_moved_loads", past_a_scalar, None, "keep %a, lanes 0", None, S=32)


@kp.jit
def reversed_in_place(x, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    tl.store(x + (S - 1 - i), a)


def test_a_nest_that_overwrites_what_it_has_yet_to_read_reads_it_first() -> None:
    check_lesson("keep_moved_loads", reversed_in_place, None, "keep %a, lanes 0", None, S=32)


@kp.jit
def in_place(x, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(x + i, tl.load(x + i) + 1.0)


def test_elements_that_replace_themselves_are_read_where_they_are_written() -> None:
    learns_nothing("keep_moved_loads", in_place, S=32)


@kp.jit
def other_branch(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    if n > 0:
        tl.store(x + i, 0.0)
    else:
        tl.store(out + i, a)


def test_a_store_of_the_other_branch_never_runs_before_a_load() -> None:
    learns_nothing("keep_moved_loads", other_branch, S=32, n="i32")


@kp.jit
def next_iteration(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    for _ in range(n):
        tl.store(out + i, a)
        tl.store(x + i, 0.0)


def test_a_store_of_an_earlier_iteration_runs_before_a_load() -> None:
    check_lesson("keep_moved_loads", next_iteration, None, "keep %a, lanes 0", None, S=32, n="i32")


# ---- protect_carried ----


@kp.jit
def halved(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    for _ in range(n):
        a = a * 0.5
    tl.store(out + i, a)


def test_a_carried_tile_whose_elements_replace_themselves_is_overwritten_at_once() -> None:
    learns_nothing("protect_carried", halved, S=32, n="i32")


@kp.jit
def old_and_new(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    total = tl.zeros((S,), tl.float32)
    for _ in range(n):
        following = a * 0.5
        top = tl.max(following)
        total += (following - top) * a
        a = following
    both = total + a
    target = out + i
    tl.store(target, both)


def test_a_carried_tile_that_is_read_later_is_overwritten_when_the_block_ends() -> None:
    check_lesson(
        "protect_carried",
        old_and_new,
        """
        buffer total: 32xf32, lanes 0, holds %total#0, %total_0, %total_1
        buffer a: 32xf32, lanes 0, holds %total#1, %a_0, %following
        nest 32, lanes 0
          total <- 0.0
          a <- %a
        for %_ carrying total, a
          nest 32, lanes 0
            a <- %following
            %top <- reduce axis 0 of %following
          nest 32, lanes 0
            total <- %total_1
        nest 32, lanes 0
          store %both to %target
        """,
        "write %following when its block ends",
        """
        buffer total: 32xf32, lanes 0, holds %total#0, %total_0, %total_1
        buffer a: 32xf32, lanes 0, holds %total#1, %a_0
        nest 32, lanes 0
          total <- 0.0
          a <- %a
        for %_ carrying total, a
          nest 32, lanes 0
            %top <- reduce axis 0 of %following
          nest 32, lanes 0
            total <- %total_1
            a <- %following
        nest 32, lanes 0
          store %both to %target
        """,
        S=32,
        n="i32",
    )


@kp.jit
def crossed(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    a, b = tl.load(x + i), tl.load(x + S + i)
    for _ in range(n):
        a, b = tl.flip(b), tl.flip(a)
    both = a + b
    target = out + i
    tl.store(target, both)


def test_carried_tiles_that_read_each_other_elsewhere_are_copied() -> None:
    same_text(
        plan(crossed, S=32, n="i32"),
        """
        buffer a: 32xf32, lanes 0, holds %a_0#0
        buffer b: 32xf32, lanes 0, holds %a_0#1
        buffer a.2: 32xf32, lanes 0, holds %a_1
        buffer b.2: 32xf32, lanes 0, holds %b_0
        %2 <- tt.addptr %x, 32
        nest 32, lanes 0
          a <- %a
          b <- %b
        for %_ carrying a, b
          nest 32, lanes 0
            a.2 <- %a_1, a copy of a
            b.2 <- %b_0, a copy of b
          nest 32, lanes 0
            a <- %a_2
            b <- %b_1
        nest 32, lanes 0
          store %both to %target
        """,
    )
