"""A row's result has the bits that it has alone, whatever other rows are in the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.ops.functional import functional, results_of
from tests.ops.layouts import bits

ops = torch.ops.kernelpack
ROWS = 67

CALLS: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]] = {
    "add_rms_norm": lambda x, y, w: functional("add_rms_norm")(x, y, w),
    "add_rms_norm_fp8": lambda x, y, w: functional("add_rms_norm_fp8")(x, y, w),
    "add_rms_norm_int8": lambda x, y, w: functional("add_rms_norm_int8")(x, y, w),
    "embedding": lambda x, y, w: ops.embedding(torch.arange(len(x)), x),
    "gelu_and_mul": lambda x, y, w: ops.gelu_and_mul(x),
    "layer_norm": lambda x, y, w: ops.layer_norm(x, w, w),
    "rms_norm": lambda x, y, w: ops.rms_norm(x, w),
    "silu_and_mul": lambda x, y, w: ops.silu_and_mul(x),
    "softmax": lambda x, y, w: ops.softmax(x),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("columns", [64, 576, 1000, 20000])
@pytest.mark.parametrize("op", CALLS)
def test_a_row_does_not_depend_on_the_others(op: str, columns: int, dtype: torch.dtype) -> None:
    x, y, weight = (torch.randn(shape).to(dtype) for shape in ((ROWS, columns), (ROWS, columns), (columns,)))
    together = results_of(CALLS[op](x, y, weight))
    for begin, end in ((0, 1), (5, 6), (ROWS - 1, ROWS), (3, 40)):
        apart = results_of(CALLS[op](x[begin:end], y[begin:end], weight))
        for one, all_rows in zip(apart, together, strict=True):
            assert torch.equal(bits(one), bits(all_rows[begin:end]))
