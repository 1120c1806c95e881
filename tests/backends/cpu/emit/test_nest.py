"""Loop nests: all roots are evaluated at a place before any of them writes; loops, squares that turn, one element at a time."""

from __future__ import annotations

import kernelpack as kp
import kernelpack.language as tl
from tests.backends.cpu.emit.llir import program
from tests.backends.fragments import count, in_order


@kp.jit
def exchange(x, y, n, S: tl.constexpr):
    i = tl.arange(0, S)
    a, b = tl.load(x + i, mask=i < n), tl.load(y + i)
    tl.store(x + i, b)
    tl.store(y + i, a, mask=i < n)


def test_everything_is_read_before_anything_is_written() -> None:
    lines = program(exchange, S=8, n="i32").splitlines()
    reads = [number for number, line in enumerate(lines) if " load <" in line or "masked.load" in line or "icmp slt" in line]
    writes = [number for number, line in enumerate(lines) if "store <" in line or "masked.store" in line]
    assert (len(reads), len(writes)) == (3, 3)  # two tiles, and the mask of both accesses; one is stored whole or under it
    assert max(reads) < min(writes)


@kp.jit
def copy(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(out + i, tl.load(x + i))


def test_a_loop_ends_after_its_last_iteration() -> None:
    in_order(
        program(copy, S=128),
        """
        store i64 0, ptr %I, align 8
        br label %nest...
        nest...:
        %N = load i64, ptr %I, align 8
        %F = add nsw i64 %N, 32
        store i64 %F, ptr %I, align 8
        %E = icmp eq i64 %N, 96
        br i1 %E, label %done..., label %nest..., !llvm.loop !0
        done...:
        """,
    )


@kp.jit
def planes(x, out, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    i, j, k = tl.arange(0, A)[:, None, None], tl.arange(0, B)[None, :, None], tl.arange(0, C)[None, None, :]
    tl.store(out + (i * B + j) * C + k, tl.load(x + (i * B + j) * C + k))


def test_loops_nest_with_the_lanes_innermost() -> None:
    text = program(planes, A=4, B=16, C=256)
    in_order(
        text,
        """
        nest...:
        nest...:
        nest...:
        %E = icmp eq i64 %K, 224
        %F = icmp eq i64 %J, 15
        %G = icmp eq i64 %I, 3
        """,
    )


@kp.jit
def turned(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(out + i[:, None] + i[None, :] * S, tl.load(x + i[:, None] * S + i[None, :]))


def test_what_runs_the_other_way_is_turned_in_registers() -> None:
    text = program(turned, S=4)
    assert count(text, "%A = load <4 x float>, ...") == 4
    assert count(text, "%A = shufflevector <4 x float> ...") == 8
    assert count(text, "store <4 x float> ...") == 4


@kp.jit
def total_and_copy(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.exp(tl.load(x + i))
    tl.store(out, tl.sum(a))
    tl.store(out + 1 + i, a)


def test_a_reduction_and_a_buffer_share_what_they_evaluate() -> None:
    text = program(total_and_copy, S=8)
    in_order(
        text,
        """
        %A = load <8 x float>, ptr ..., align 4
        %E = fmul <8 x float> ...
        %S = load <8 x float>, ptr %T, align 64
        ... = fadd contract <8 x float> %S, ...
        store <8 x float> ..., ptr %T, align 64
        store <8 x float> ..., ptr %B, align 4
        """,
    )
    assert count(text, "%A = load <8 x float>, ptr %v..., align 4") == 1  # from x: once


@kp.jit
def swapped(a, b):
    return b, a


@kp.jit
def mapped(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(out + i, tl.map_elementwise(swapped, tl.load(x + i), pack=2)[0])


def test_a_map_of_pairs_gives_its_region_neighbours_one_by_one() -> None:
    in_order(
        program(mapped, S=2),
        """
        %A = load <2 x float>, ptr ..., align 4
        %F = extractelement <2 x float> %A, i64 0
        %S = extractelement <2 x float> %A, i64 1
        store float %S, ptr %T, align 4
        %P = getelementptr i8, ptr %T, i64 4
        store float %F, ptr %P, align 4
        """,
    )


@kp.jit
def histogram(x, out, n, S: tl.constexpr, BINS: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(out + tl.arange(0, BINS), tl.histogram(tl.load(x + i), BINS, mask=i < n))


def test_a_histogram_counts_values_of_its_range_one_by_one() -> None:
    text = program(histogram, S=2, BINS=16, n="i32", x="*i32", out="*i32")
    in_order(
        text,
        """
        call void @llvm.memset.p0.i64(ptr %T, i8 0, i64 64, i1 false)
        %V = extractelement <2 x i32> %A, i64 0
        %M = extractelement <2 x i1> %B, i64 0
        %W = zext i32 %V to i64
        %I = icmp ult i64 %W, 16
        %C = and i1 %I, %M
        %S = select i1 %C, i64 %W, i64 0
        %O = shl i64 %S, 2
        %P = getelementptr i8, ptr %T, i64 %O
        %N = load i32, ptr %P, align 4
        %Z = zext i1 %C to i32
        %Y = add i32 %N, %Z
        store i32 %Y, ptr %P, align 4
        """,
    )
    assert count(text, "%A = icmp ult i64 ...") == 2


@kp.jit
def messages(x, n, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.device_print("x", tl.load(x + i))


def test_printing_takes_the_place_of_each_element() -> None:
    in_order(
        program(messages, S=16, n="i32"),
        """
        nest...:
        %N = load i64, ptr ..., align 8
        %I = trunc i64 %N to i32
        %V = load float, ptr ..., align 4
        %W = fpext float %V to double
        %C = call i32 (i32, ptr, ...) @dprintf(i32 1, ptr ..., i32 ..., i32 ..., i32 ..., i32 %I, double %W)
        %F = add nsw i64 %N, 1
        """,
    )


@kp.jit
def reversed_sums(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(out + i, tl.cumsum(tl.load(x + i), 0, reverse=True))


def test_a_scan_from_the_end_counts_downwards() -> None:
    in_order(
        program(reversed_sums, S=32),
        """
        store i64 24, ptr %I, align 8
        %N = load i64, ptr %I, align 8
        %F = add nsw i64 %N, -8
        %E = icmp eq i64 %N, 0
        """,
    )
