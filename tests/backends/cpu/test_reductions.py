"""Reductions and scans over every axis and shape agree with the interpreter."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from tests.backends.cpu.agreement import check


@kp.jit
def sum_rows(x, out, N, M: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.arange(0, M)
    cols = tl.arange(0, BLOCK)
    tile = tl.load(x + rows[:, None] * N + cols[None, :], mask=cols[None, :] < N, other=0)
    tl.store(out + rows, tl.sum(tile, axis=1))


@kp.jit
def max_columns(x, out, N, M: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.arange(0, M)
    cols = tl.arange(0, BLOCK)
    tile = tl.load(x + rows[:, None] * N + cols[None, :], mask=cols[None, :] < N, other=0)
    tl.store(out + cols, tl.max(tile, axis=0), mask=cols < N)


@kp.jit
def everything(x, out, N, M: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.arange(0, M)
    cols = tl.arange(0, BLOCK)
    tile = tl.load(x + rows[:, None] * N + cols[None, :], mask=cols[None, :] < N, other=1)
    tl.store(out, tl.sum(tile))
    tl.store(out + 1, tl.max(tile))
    tl.store(out + 2, tl.min(tile))


@kp.jit
def farther(a, b):
    return tl.where(tl.abs(a) > tl.abs(b), a, b)


@kp.jit
def custom(x, out, M: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.arange(0, M)
    cols = tl.arange(0, BLOCK)
    tile = tl.load(x + rows[:, None] * BLOCK + cols[None, :])
    tl.store(out + rows, tl.reduce(tile, 1, farther))


@kp.jit
def running_sum(x, out, AXIS: tl.constexpr, REVERSE: tl.constexpr, M: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.arange(0, M)
    cols = tl.arange(0, BLOCK)
    places = rows[:, None] * BLOCK + cols[None, :]
    tl.store(out + places, tl.cumsum(tl.load(x + places), axis=AXIS, reverse=REVERSE))


@kp.jit
def three_axes(x, out, AXIS: tl.constexpr, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    i = tl.arange(0, A)[:, None, None]
    j = tl.arange(0, B)[None, :, None]
    k = tl.arange(0, C)[None, None, :]
    tile = tl.load(x + (i * B + j) * C + k)
    reduced = tl.sum(tile, axis=AXIS)
    R: tl.constexpr = reduced.shape[0]
    S: tl.constexpr = reduced.shape[1]
    tl.store(out + tl.arange(0, R)[:, None] * S + tl.arange(0, S)[None, :], reduced)


SHAPES = [(1, 16), (4, 64), (8, 8), (16, 128), (64, 4), (2, 1024), (32, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.int64], ids=str)
def test_rows_and_columns(shape: tuple[int, int], dtype: torch.dtype) -> None:
    m, block = shape
    for n in {block, max(1, block - 3)}:
        x = torch.randint(-1, 2, (m, n)).to(dtype)  # sums are exact in every order
        check(sum_rows, (1,), x, torch.zeros(m, dtype=dtype), n, M=m, BLOCK=block)
        check(max_columns, (1,), x, torch.zeros(n, dtype=dtype), n, M=m, BLOCK=block)
        check(everything, (1,), x, torch.zeros(3, dtype=dtype), n, M=m, BLOCK=block)


def test_a_combine_function_without_identity() -> None:
    for m, block in [(1, 16), (4, 256), (16, 8)]:
        check(custom, (1,), torch.randn(m, block), torch.zeros(m), M=m, BLOCK=block)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_scans(axis: int, reverse: bool) -> None:
    for m, block in [(1, 64), (8, 16), (64, 4), (4, 256)]:
        x = torch.randint(-9, 9, (m, block)).float()
        check(running_sum, (1,), x, torch.zeros_like(x), AXIS=axis, REVERSE=reverse, M=m, BLOCK=block)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_three_axes(axis: int) -> None:
    shape = [4, 8, 32]
    x = torch.randint(-9, 9, shape).float()
    kept = [extent for position, extent in enumerate(shape) if position != axis]
    check(three_axes, (1,), x, torch.zeros(kept), AXIS=axis, A=4, B=8, C=32)


def test_a_row_of_nan_and_infinity() -> None:
    x = torch.randn(4, 64)
    x[0, 3] = float("nan")
    x[1, :] = float("-inf")
    x[2, 5] = float("inf")
    x[3, :] = float("nan")
    check(max_columns, (1,), x, torch.zeros(64), 64, M=4, BLOCK=64)
    check(sum_rows, (1,), x, torch.zeros(4), 64, M=4, BLOCK=64)
