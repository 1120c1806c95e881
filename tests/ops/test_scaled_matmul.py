"""scaled_matmul: products of 8-bit floats with scales for rows and columns, on a CPU and as compiled for GPUs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ops.scaled_matmul import reference, scaled_matmul
from tests.simt.emulated_ops import call

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def run(target: str, *args: Any) -> torch.Tensor:
    if target == "cpu":
        result: torch.Tensor = scaled_matmul(*args)
        return result
    return call(target, scaled_matmul, args, {})[0]


def arguments(shape: tuple[int, int, int], dtype: torch.dtype, by_row: bool, bias: bool) -> list[Any]:
    rows, columns, depth = shape
    a, weight = torch.randn(rows, depth).to(dtype), torch.randn(columns, depth).to(E4M3)
    scales = (torch.rand(rows, 1) + 0.5, torch.rand(1, columns) + 0.5) if by_row else (torch.tensor(0.3), torch.tensor([2.0]))
    return [a, weight.t(), *scales, torch.randn(columns).bfloat16() if bias else None]


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.parametrize(
    ("shape", "dtype", "by_row", "bias"),
    [((140, 272, 144), E4M3, True, True), ((33, 17, 70), E5M2, False, False), ((1, 64, 512), E5M2, True, False)],
    ids=["aligned", "unaligned", "one row"],
)
def test_products_are_those_of_the_scaled_operands(
    target: str, shape: tuple[int, int, int], dtype: torch.dtype, by_row: bool, bias: bool
) -> None:
    torch.manual_seed(0)
    args = arguments(shape, dtype, by_row, bias)
    got, exact = run(target, *args), reference(*args)
    assert got.dtype == torch.bfloat16
    assert got.shape == exact.shape
    # a bfloat16 result is rounded once; the emulator and the CPU sum in float32
    assert (got.double() - exact).abs().max() <= 2**-8 * exact.abs().max()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({1: lambda b: b.contiguous()}, r"the first dimension of b must be contiguous.*pass weight.t\(\)"),
        ({2: lambda s: s[:-1]}, r"scale_a has shape .*, expected one value, or 40"),
        ({4: lambda b: b[:-1]}, r"bias has shape .*, expected one contiguous dimension of 32"),
    ],
    ids=["row-major b", "scales of some rows", "a short bias"],
)
def test_what_does_not_fit_is_refused(change: Any, message: str) -> None:
    args = arguments((40, 32, 16), E4M3, True, True)
    for index, made in change.items():
        args[index] = made(args[index])
    with pytest.raises(Exception, match=f"(?s){message}"):
        scaled_matmul(*args)
