"""Conversions of layouts give every thread the elements that it should hold."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.options import Options
from tests.backends.cuda.launch import Launch
from tests.backends.cuda.running import emulate


@kp.jit
def weighted_rows(x, weights, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    weight = tl.load(weights + rows * 2)  # every warp holds it all, and each needs the rows of its own
    weight = tl.exp2(weight - tl.max(weight, 0))
    tile = tl.load(x + rows[:, None] * COLUMNS + columns[None, :])
    tl.store(out + columns, tl.sum(tile * weight[:, None], 0))


@pytest.mark.parametrize("num_warps", [1, 2, 4, 8])
@pytest.mark.parametrize("rows", [8, 16, 32])
def test_lanes_to_take_from_may_depend_on_the_warp(rows: int, num_warps: int) -> None:
    x, weights = torch.randn(rows, 128), torch.randn(rows, 2)
    expected = (x.double() * torch.exp2(weights[:, :1].double() - weights[:, 0].max())).sum(0)
    arguments = {"x": x, "weights": weights, "out": torch.full((128,), float("nan")), "ROWS": rows, "COLUMNS": 128}
    emulate(Launch(weighted_rows, (1,), arguments, {"out": expected}, 1e-5, Options(num_warps=num_warps)))
