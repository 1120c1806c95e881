"""Reductions and scans of a nest: independent accumulators, how they start, and how lanes become one value."""

from __future__ import annotations

import pytest

import kernelpack as kp
import kernelpack.language as tl
from tests.backends.cpu.emit.llir import program
from tests.backends.fragments import count, in_order


@kp.jit
def total(x, out, S: tl.constexpr):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, S))))


def test_four_sums_run_side_by_side_and_become_one_by_halves() -> None:
    text = program(total, S=128)
    assert count(text, "store <8 x float> splat (float 0x8000000000000000), ptr %A, align 64") == 4  # -0 changes no sum
    in_order(
        text,
        """
        done...:
        %A = load <8 x float>, ptr ..., align 64
        %B = load <8 x float>, ptr ..., align 64
        %C = load <8 x float>, ptr ..., align 64
        %D = load <8 x float>, ptr ..., align 64
        %E = fadd contract <8 x float> %A, %C
        %F = fadd contract <8 x float> %B, %D
        %G = fadd contract <8 x float> %E, %F
        %L = shufflevector <8 x float> %G, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
        %H = shufflevector <8 x float> %G, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
        %I = fadd contract <4 x float> %L, %H
        ... = fadd contract <2 x float> ...
        %M = extractelement <2 x float> %N, i64 0
        %O = extractelement <2 x float> %N, i64 1
        %S = fadd contract float %M, %O
        store float %S, ptr %out, align 4
        """,
    )


@kp.jit
def extreme(x, out, S: tl.constexpr, WHICH: tl.constexpr):
    a = tl.load(x + tl.arange(0, S))
    if WHICH == 0:
        tl.store(out, tl.max(a))
    elif WHICH == 1:
        tl.store(out, tl.min(a))
    elif WHICH == 2:
        tl.store(out, tl.xor_sum(a))
    else:
        tl.store(out, tl.sum(a))


@pytest.mark.parametrize(
    ("which", "kind", "start"),
    [
        ("max", "*fp32", "float 0x7FF8000000000000"),  # maxnum passes over NaN
        ("min", "*fp32", "float 0x7FF8000000000000"),
        ("sum", "*fp32", "float 0x8000000000000000"),
        ("max", "*i32", f"i32 {-(1 << 31)}"),
        ("min", "*i32", f"i32 {(1 << 31) - 1}"),
        ("max", "*u32", "i32 0"),
        ("min", "*u32", "i32 -1"),
        ("xor", "*i32", "i32 0"),
        ("sum", "*i32", "i32 0"),
    ],
)
def test_reductions_start_from_what_changes_nothing(which: str, kind: str, start: str) -> None:
    text = program(extreme, S=8, WHICH=["max", "min", "xor", "sum"].index(which), x=kind, out=kind)
    assert count(text, f"store <8 x ...> splat ({start}), ptr %A, align 64") == 1


@kp.jit
def last_of_two(a, b):
    return a * 0.5 + b


@kp.jit
def folded(x, out, S: tl.constexpr):
    tl.store(out, tl.reduce(tl.load(x + tl.arange(0, S)), 0, last_of_two))


def test_a_reduction_without_a_neutral_value_starts_from_its_first_element() -> None:
    in_order(
        program(folded, S=128),
        """
        %N = load i64, ptr ..., align 8
        %V = load <8 x float>, ptr ..., align 4
        %A = load <8 x float>, ptr %T, align 64
        %B = fmul contract <8 x float> %A, splat (float 0x3FE0000000000000)
        %C = fadd contract <8 x float> %B, %V
        %F = icmp eq i64 %N, 0
        %S = select i1 %F, <8 x float> %V, <8 x float> %C
        store <8 x float> %S, ptr %T, align 64
        """,
    )


def test_without_a_loop_the_first_element_is_all_there_is_to_start_with() -> None:
    text = program(folded, S=8)
    assert not count(text, "%A = select ...")
    in_order(text, "%V = load <8 x float>, ptr %P, align 4\n%A = load ...\nstore <8 x float> %V, ptr ..., align 64")


@kp.jit
def columns(x, out, S: tl.constexpr, T: tl.constexpr):
    i, j = tl.arange(0, S), tl.arange(0, T)
    tl.store(out + j, tl.sum(tl.load(x + i[:, None] * T + j[None, :]), 0))


def test_across_the_lanes_nothing_is_merged_within_a_vector() -> None:
    text = program(columns, S=64, T=8)
    assert count(text, "%A = shufflevector <8 x float> ...") == 0
    assert count(text, "store <8 x float> splat (float 0x8000000000000000), ptr %A, align 64") == 4


@kp.jit
def best(x, out, at, S: tl.constexpr):
    value, index = tl.max(tl.load(x + tl.arange(0, S)), 0, return_indices=True)
    tl.store(out, value)
    tl.store(at, index)


def test_operands_that_are_reduced_together_have_accumulators_each() -> None:
    text = program(best, S=8, at="*i32")
    assert count(text, "%A = load <8 x float>, ptr %B, align 64") >= 1
    assert count(text, "%A = load <8 x i32>, ptr %B, align 64") >= 1
    in_order(text, "store float %V, ptr %out, align 4\nstore i32 %I, ptr %at, align 4")


@kp.jit
def running(x, out, S: tl.constexpr, REVERSE: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(out + i, tl.cumsum(tl.load(x + i), 0, reverse=REVERSE))


def test_a_vector_is_scanned_in_log_steps_and_then_joined_to_what_came_before() -> None:
    in_order(
        program(running, S=16, REVERSE=False),
        """
        %V = load <8 x float>, ptr ..., align 4
        %A = shufflevector <8 x float> %V, <8 x float> poison, <8 x i32> <i32 0, i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6>
        %B = fadd contract <8 x float> %A, %V
        %C = select <8 x i1> <i1 false, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true>, <8 x float> %B, <8 x float> %V
        %D = shufflevector <8 x float> %C, <8 x float> poison, <8 x i32> <i32 0, i32 0, i32 0, i32 1, i32 2, i32 3, i32 4, i32 5>
        %E = shufflevector <8 x float> %F, <8 x float> poison, <8 x i32> <i32 0, i32 0, i32 0, i32 0, i32 0, i32 1, i32 2, i32 3>
        %G = load <8 x float>, ptr %T, align 64
        %H = icmp eq i64 %N, 0
        %I = fadd contract <8 x float> %G, %W
        %J = select i1 %H, <8 x float> %W, <8 x float> %I
        store <8 x float> %J, ptr %O, align 4
        %K = shufflevector <8 x float> %J, <8 x float> poison, <8 x i32> <i32 7, i32 7, i32 7, i32 7, i32 7, i32 7, i32 7, i32 7>
        store <8 x float> %K, ptr %T, align 64
        """,
    )


def test_a_scan_from_the_end_shifts_the_other_way_and_hands_on_its_first_lane() -> None:
    in_order(
        program(running, S=16, REVERSE=True),
        """
        %V = load <8 x float>, ptr ..., align 4
        %A = shufflevector <8 x float> %V, <8 x float> poison, <8 x i32> <i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 7>
        %B = fadd contract <8 x float> %A, %V
        %C = select <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 false>, <8 x float> %B, <8 x float> %V
        %H = icmp eq i64 %N, 8
        %K = shufflevector <8 x float> %J, <8 x float> poison, <8 x i32> <i32 0, i32 0, i32 0, i32 0, i32 0, i32 0, i32 0, i32 0>
        """,
    )


@kp.jit
def running_rows(x, out, S: tl.constexpr, T: tl.constexpr):
    i, j = tl.arange(0, S), tl.arange(0, T)
    at = i[:, None] * T + j[None, :]
    tl.store(out + at, tl.cumsum(tl.load(x + at), 0))


def test_a_scan_across_the_lanes_adds_whole_vectors() -> None:
    text = program(running_rows, S=4, T=8)
    assert count(text, "%A = shufflevector ...") == 0
    in_order(
        text, "%H = icmp eq i64 %N, 0\n%I = fadd contract <8 x float> %G, %W\n%J = select i1 %H, <8 x float> %W, <8 x float> %I"
    )
