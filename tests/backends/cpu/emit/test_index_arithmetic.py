"""Sums and products of indices keep the form (base, step): an instruction or two for all lanes."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.kernel.jit import JITFunction
from tests.backends.cpu.agreement import check
from tests.backends.cpu.emit.llir import program
from tests.backends.fragments import count, in_order


def indices(kernel: JITFunction, **types: str | int) -> str:
    return program(kernel, **({} if "B" in types else {"S": 8}), **types)


@kp.jit
def stored(out, n, S: tl.constexpr):
    """The values of an index, which a store has as a vector. They wrap, so they are widened as vectors."""
    i = tl.arange(0, S)
    tl.store(out + i, (n - (i + 5) * 3 + n * 2).to(tl.int64))


def test_an_index_is_a_base_and_a_constant_step() -> None:
    text = indices(stored, n="i32", out="*i64")
    in_order(
        text,
        """
        %D = mul i32 %n, 2
        %A = add i32 0, 5
        %B = mul i32 %A, 3
        %C = sub i32 %n, %B
        %E = add i32 %C, %D
        %I = insertelement <8 x i32> poison, i32 %E, i64 0
        %J = shufflevector <8 x i32> %I, <8 x i32> poison, <8 x i32> zeroinitializer
        %W = add <8 x i32> %J, <i32 0, i32 -3, i32 -6, i32 -9, i32 -12, i32 -15, i32 -18, i32 -21>
        %V = sext <8 x i32> %W to <8 x i64>
        store <8 x i64> %V, ptr ..., align 8
        """,
    )
    assert not count(text, "%A = mul <8 x i32> ...")


@kp.jit
def by_a_stride(x, out, n, m, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(out + i, tl.load(x + i * n * 2 + i * m))


def test_a_step_of_run_time_scalars_is_computed_once() -> None:
    in_order(
        indices(by_a_stride, n="i32", m="i32"),
        """
        %A = mul nsw i32 0, %n
        %B = mul nsw i32 %A, 2
        %C = mul i32 %n, 2
        %P = getelementptr float, ptr %x, i32 %B
        %D = sext i32 %C to i64
        %E = mul i64 %D, 4
        %S = add i64 0, %E
        %M = mul nsw i32 0, %m
        %Q = getelementptr float, ptr %P, i32 %M
        %F = sext i32 %m to i64
        %G = mul i64 %F, 4
        %H = add i64 %S, %G
        %I = insertelement <8 x i64> poison, i64 %H, i64 0
        ... = getelementptr i8, ptr %Q, <8 x i64> ...
        """,
    )


@kp.jit
def by_data(x, at, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    which = tl.load(at + i) + i
    tl.store(out + i, tl.load(x + which))


def test_an_index_that_memory_gives_is_a_vector() -> None:
    in_order(
        indices(by_data, n="i32", at="*i32"),
        """
        %L = load <8 x i32>, ptr ..., align 4
        %I = add <8 x i32> splat (i32 0), <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
        %W = add <8 x i32> %L, %I
        %P = getelementptr float, ptr %x, <8 x i32> %W
        ... = call <8 x float> @llvm.masked.gather.v8f32.v8p0(<8 x ptr> %P, ...)
        """,
    )


@kp.jit
def squares(out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(out + i, i * i + n)


def test_a_product_of_two_indices_is_a_vector() -> None:
    text = indices(squares, n="i32", out="*i32")
    assert count(text, "%A = mul <8 x i32> ...") == 1


@kp.jit
def scalars(out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(out + i, tl.zeros((S,), tl.int32) + n + n * 3)


def test_what_all_lanes_share_stays_scalar() -> None:
    text = indices(scalars, n="i32", out="*i32")
    assert not count(text, "%A = add <8 x i32> ...")
    assert not count(text, "%A = mul <8 x i32> ...")


@kp.jit
def narrow(out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(out + i, (i * n).to(tl.int8))


def test_what_may_wrap_when_it_is_narrowed_is_narrowed_as_a_vector() -> None:
    in_order(
        indices(narrow, n="i32", out="*i8"),
        """
        %M = mul <8 x i32> ..., <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
        %W = add <8 x i32> ...
        %N = trunc <8 x i32> %W to <8 x i8>
        """,
    )


@kp.jit
def few(out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(out + i, (i * 3).to(tl.int8))


def test_bases_are_narrowed_where_all_places_fit() -> None:
    text = indices(few, n="i32", out="*i8")
    assert count(text, "%B = trunc i32 ... to i8") == 1
    assert not count(text, "%N = trunc <8 x i32> ...")


@kp.jit
def cut(x, out, S: tl.constexpr, LENGTH: tl.constexpr, SHIFT: tl.constexpr):
    """A flat index as that of rows, whose order is turned. SHIFT moves it below zero."""
    i = tl.program_id(0) * S + tl.arange(0, S) - SHIFT
    tl.store(out + i + SHIFT, tl.load(x + (i % LENGTH) + LENGTH * (7 - i // LENGTH)))


@kp.jit
def quotients(out, S: tl.constexpr, LENGTH: tl.constexpr, SHIFT: tl.constexpr):
    i = tl.program_id(0) * S + tl.arange(0, S)
    tl.store(out + i, (i - SHIFT) // LENGTH * 1000 + (i - SHIFT) % LENGTH)


def test_neighbours_are_divided_as_one_where_their_quotient_is_the_same() -> None:
    rows = indices(cut, x="*fp32", out="*fp32", LENGTH=24, SHIFT=0)
    assert not count(rows, "%A = sdiv <8 x i32> ...")
    assert not count(rows, "%A = srem <8 x i32> ...")
    in_order(rows, "%V = load <8 x float>, ptr %P, align 4")
    for length, shift in ((12, 0), (24, 8)):  # two quotients in a vector; a sign that is not known
        assert count(indices(cut, x="*fp32", out="*fp32", LENGTH=length, SHIFT=shift), "%A = sdiv <8 x i32> ...")


@pytest.mark.parametrize("length", [1, 3, 8, 12, 24, 32, 288])
@pytest.mark.parametrize("shift", [0, 5, 40])
def test_quotients_and_remainders_are_those_of_each_lane(length: int, shift: int) -> None:
    check(quotients, (9,), torch.empty(9 * 64, dtype=torch.int32), S=64, LENGTH=length, SHIFT=shift)


@kp.jit
def turned(x, out, B: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Images of ROWS x COLUMNS, whose two axes change places: a flat index of rows and images is cut."""
    rows = tl.program_id(0) * B + tl.arange(0, B)[:, None]
    columns = tl.arange(0, COLUMNS)[None, :]
    at = rows % ROWS + ROWS * columns + ROWS * COLUMNS * (rows // ROWS)
    tl.store(out + columns + COLUMNS * rows, tl.load(x + at) + 1.0)


def test_rows_of_a_flat_index_are_read_whole_and_turned() -> None:
    text = indices(turned, x="*fp32", out="*fp32", B=32, ROWS=64, COLUMNS=16)
    assert "llvm.masked.gather" not in text
    assert "llvm.masked.scatter" not in text
    x = torch.randn(2, 16, 64)
    check(turned, (4,), x, torch.empty(2, 64, 16), B=32, ROWS=64, COLUMNS=16)
    check(turned, (3,), torch.randn(4, 16, 24), torch.empty(4, 24, 16), B=32, ROWS=24, COLUMNS=16)
