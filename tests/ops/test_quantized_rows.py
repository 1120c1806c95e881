"""add_rms_norm_int8 and add_rms_norm_fp8: result times scale is the norm, to half a step; rows that have none say so by their scale."""

from __future__ import annotations

import pytest
import torch

from tests.ops.grid import module_of
from tests.simt.emulated_ops import call

LARGEST = {"add_rms_norm_int8": 127.0, "add_rms_norm_fp8": 448.0}
TARGETS = ("built", "cuda:sm_80", "cuda:sm_90a")


def run(target: str, op: str, *args: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return (
        getattr(torch.ops.kernelpack, op)(*args) if target == "built" else call(target, getattr(module_of(op), op), args, {})[0]
    )


@pytest.mark.parametrize("columns", [576, 2064, 9000])
@pytest.mark.parametrize("op", LARGEST)
@pytest.mark.parametrize("target", TARGETS)
def test_result_times_scale_is_the_norm(target: str, op: str, columns: int) -> None:
    x, residual, weight = torch.randn(3, columns), torch.randn(3, columns) * 5, torch.randn(columns)
    exact, total = module_of("add_rms_norm").reference(x.double(), residual.double(), weight.double())
    out, scales = run(target, op, x, residual, weight)
    torch.testing.assert_close(residual, total.float())
    assert (out.dtype, scales.dtype, scales.shape) == (
        torch.int8 if "int8" in op else torch.float8_e4m3fn, torch.float32, (3, 1),
    )  # fmt: skip
    assert (out.double().abs().amax(-1) == LARGEST[op]).all()
    error = (out.double() * scales - exact).abs()
    # half of the last of 4 significant bits, or of the smallest step (2^-9)
    step = torch.full_like(exact, 0.5) if "int8" in op else torch.maximum(out.double().abs() * 2.0**-4, torch.tensor(2.0**-10))
    assert (error <= step * scales * 1.0001).all()


@pytest.mark.parametrize("op", LARGEST)
@pytest.mark.parametrize("target", TARGETS)
def test_rows_without_a_norm_say_so(target: str, op: str) -> None:
    x, weight = torch.randn(4, 100), torch.randn(100)
    x[0], x[1, 7], x[2, 99] = 0.0, float("nan"), float("inf")
    out, scales = run(target, op, x, torch.zeros(4, 100), weight)
    assert (out[0].float() == 0).all()
    assert scales[0] == 0
    assert scales[1:3].isnan().all()
    assert scales[3].isfinite()
