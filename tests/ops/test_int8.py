"""scaled_matmul of int8: sums are exact at every CPU level, so results equal the reference bit for bit."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.ops.grid import module_of
from tests.ops.levels import LEVELS, run_at

SHAPES = [
    (1, 1, 1),
    (1, 300, 70),
    (1, 64, 1024),
    (1, 130, 1300),
    (5, 7, 1000),
    (16, 130, 512),
    (16, 70, 650),
    (17, 33, 65),
    (40, 100, 600),
    (65, 127, 33),
    (300, 129, 1100),
    (500, 500, 600),
    (500, 500, 1030),
]
"""Rows, columns and steps along k: every kernel of few rows and of large blocks, with whole blocks and what is left over."""


def bytes_of(*shape: int) -> torch.Tensor:
    """Random bytes, the least ones often."""
    values = torch.randint(-128, 128, shape, dtype=torch.int8)
    return torch.where(torch.rand(shape) < 0.1, -128, values).to(torch.int8)


def check() -> None:
    """Compares results at the level that this process runs."""
    torch.manual_seed(0)
    op, reference = torch.ops.kernelpack.scaled_matmul, module_of("scaled_matmul").reference
    for (m, n, k), by_row, bias in itertools.product(SHAPES, (False, True), (False, True)):
        a, weight = bytes_of(m, k), bytes_of(n, k)
        scales = (torch.rand(m, 1), torch.rand(1, n)) if by_row else (torch.tensor(0.3), torch.tensor([2.0]))
        added = torch.randn(n).bfloat16() if bias else None
        got = op(a, weight.t(), *scales, added)
        torch.testing.assert_close(got, reference(a, weight.t(), *scales, added), atol=0.0, rtol=2.0**-8)
    padded = bytes_of(9, 64)[:, :48]
    weight = bytes_of(20, 96)[:, 7:55]
    one = torch.ones(1)
    assert torch.equal(op(padded, weight.t(), one, one), reference(padded, weight.t(), one, one))


@pytest.mark.parametrize("level", [*LEVELS, "cpu:x86-64-v4+avx512vnni"])
def test_sums_are_exact(level: str) -> None:
    done = run_at(level, "-c", "import kernelpack; from tests.ops.test_int8 import check; check()")
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_largest_sums_fit() -> None:
    a = torch.full((2, 131_071), -128, dtype=torch.int8)
    one = torch.ones(1)
    assert torch.ops.kernelpack.scaled_matmul(a, a.t(), one, one).unique().item() == 2.0**31


def test_int8_and_8_bit_floats_do_not_mix() -> None:
    a, b, one = bytes_of(4, 16), bytes_of(8, 16).t(), torch.ones(1)
    with pytest.raises(RuntimeError, match="scaled_matmul: b must be int8, as a is"):
        torch.ops.kernelpack.scaled_matmul(a, b.to(torch.float8_e4m3fn), one, one)
    with pytest.raises(RuntimeError, match="scaled_matmul: b is int8, a has 8-bit floats"):
        torch.ops.kernelpack.scaled_matmul(a.to(torch.float8_e4m3fn), b, one, one)
