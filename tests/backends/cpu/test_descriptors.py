"""Tensor descriptors on the CPU: what every level computes is what the interpreter says."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from tests.backends.cpu.agreement import check


@kp.jit
def move(a, b, m, n, i, j, BM: tl.constexpr, BN: tl.constexpr, PAD: tl.constexpr):
    d = tl.make_tensor_descriptor(a, [m, n], [n + 3, 1], [BM, BN], padding_option=PAD)
    e = tl.make_tensor_descriptor(b, [m, n], [n, 1], [BM, BN])
    for k in range(0, n, BN):
        e.store([tl.program_id(0) * BM, k], d.load([tl.program_id(0) * BM + i, k + j]))


@pytest.mark.parametrize(("i", "j"), [(0, 0), (-3, 2), (5, -7)])
@pytest.mark.parametrize("pad", ["zero", "nan"])
def test_blocks_move(i: int, j: int, pad: str) -> None:
    check(move, (3,), torch.randn(37, 23 + 3), torch.zeros(37, 23), 37, 23, i, j, BM=16, BN=8, PAD=pad)


@kp.jit
def product(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    da = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BM, BK])
    db = tl.make_tensor_descriptor(b, [n, k], [k, 1], [BN, BK])
    dc = tl.make_tensor_descriptor(c, [m, n], [n, 1], [BM, BN])
    acc = tl.zeros([BM, BN], tl.float32)
    for at in range(0, k, BK):
        acc = tl.dot(da.load([tl.program_id(0) * BM, at]), db.load([tl.program_id(1) * BN, at]).T, acc, input_precision="ieee")
    dc.store([tl.program_id(0) * BM, tl.program_id(1) * BN], acc)


def test_products() -> None:
    a, b = torch.randn(40, 50), torch.randn(33, 50)
    check(product, (2, 2), a, b, torch.zeros(40, 33), 40, 33, 50, BM=32, BN=32, BK=16, rtol=1e-5, atol=1e-5)


@kp.jit
def rows(a, b, c, r, m, n):
    picked = tl.load(r + tl.arange(0, 8))
    source = tl.make_tensor_descriptor(a, [m, n], [n, 1], [1, 16])
    target = tl.make_tensor_descriptor(b, [m, n], [n, 1], [1, 16])
    target.scatter(source.gather(picked, 4) * 2, picked, 2)
    total = tl.make_tensor_descriptor(c, [m, n], [n, 1], [4, 8])
    total.atomic_add([m - 2, 3], total.load([0, 0]))


@kp.jit
def extremes(x, largest, least, m, n):
    block = tl.make_tensor_descriptor(x, [m, n], [n, 1], [8, 16]).load([0, 0])
    for row in range(4):  # every element meets four of x
        tl.make_tensor_descriptor(largest, [m, n], [n, 1], [8, 16]).atomic_max([tl.program_id(0) - row, 0], block)
        tl.make_tensor_descriptor(least, [m, n], [n, 1], [8, 16]).atomic_min([tl.program_id(0) - row, 0], block)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_extremes_of_halves(dtype: torch.dtype) -> None:
    x = torch.randn(7, 16).to(dtype)
    x[3] = -0.0
    check(extremes, (2,), x, torch.zeros_like(x), torch.zeros_like(x), 7, 16)


def test_rows_and_sums() -> None:
    picked = torch.tensor([5, 0, -1, 3, 6, 100, 2, 1], dtype=torch.int32)
    check(rows, (1,), torch.randn(7, 18), torch.zeros(7, 18), torch.randn(7, 18), picked, 7, 18)
