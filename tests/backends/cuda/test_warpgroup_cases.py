"""Products of warpgroups, computed by the emulator for sm_90a, agree with torch in every order of threads and completions."""

from __future__ import annotations

import pytest
import torch

from tests.backends.cuda.cases import Attention, Product, warpgroup_products
from tests.backends.cuda.running import emulate, lower

LAUNCHES = [product for product, small in warpgroup_products() if small]
LAUNCHES += [Attention(torch.bfloat16, 1, 64, 100, 64, (64, 64), causal) for causal in (False, True)]  # type: ignore[list-item]

LAUNCHES += [Attention(torch.float16, 1, 128, 200, 64, (128, 32), True, num_warps=8, num_stages=3)]  # type: ignore[list-item]


@pytest.mark.parametrize("case", LAUNCHES, ids=lambda case: case.name)
def test_computes_what_torch_does(case: Product | Attention) -> None:
    assert "wgmma.mma_async" in lower(case.launch(), "cuda:sm_90a")[1]
    emulate(case.launch(), "cuda:sm_90a")
