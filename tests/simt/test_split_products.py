"""float32 products on tensor cores, in three products of tf32 (`input_precision="tf32x3"`)."""

from __future__ import annotations

import math

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.simt import Emulator


@kp.jit
def product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + rows[:, None] * K + depth[None, :])
    y = tl.load(b + depth[:, None] * N + columns[None, :])
    tl.store(c + rows[:, None] * N + columns[None, :], tl.dot(x, y, input_precision="tf32x3"))


def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty(a.shape[0], b.shape[1])
    with Emulator("cuda:sm_90a"):
        product[(1,)](a, b, c, a.shape[0], b.shape[1], a.shape[1])
    return c


@pytest.mark.parametrize("size", [1.0, 1e30, 1e-30])
def test_products_are_as_exact_as_float32(size: float) -> None:
    torch.manual_seed(1)
    a, b = torch.rand(32, 128) + 0.5, torch.rand(128, 16) + 0.5  # nothing cancels, so that a bias would show
    exact = a.double() @ b.double()
    error = multiply(a * size, b).double() / size / exact - 1
    assert error.abs().max() < 2.0**-22
    assert error.mean().abs() < 2.0**-24


def test_infinity_and_nan_are_what_they_are_in_float32() -> None:
    a, b = torch.rand(16, 16) + 0.1, torch.rand(16, 16) + 0.1
    a[1, 3], a[2, 5], a[4, 2] = math.inf, -math.inf, math.nan
    b[7, 6], b[3, 4], b[8, 9] = math.inf, 1.0, math.nan  # 1.0 has no small part
    torch.testing.assert_close(multiply(a, b), a @ b, equal_nan=True)
