"""Products of warpgroups, computed by the emulator for sm_90a, agree with torch in every order of threads and completions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.backends.cuda.launch import Launch
from tests.backends.cuda.product_cases import WARPGROUP_IDIOMS, Attention, warpgroup_products
from tests.backends.cuda.running import emulate, lower

ATTENTIONS = [Attention(torch.bfloat16, 1, 64, 100, 64, (64, 64), causal) for causal in (False, True)]
ATTENTIONS += [Attention(torch.float16, 1, 128, 200, 64, (128, 32), True, num_warps=8, num_stages=3)]
LAUNCHES: dict[str, Callable[[], Launch]] = {
    **{product.name: product.launch for product, small in warpgroup_products() if small},
    **{attention.name: attention.launch for attention in ATTENTIONS},
    **WARPGROUP_IDIOMS,
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_computes_what_torch_does(name: str) -> None:
    launch = LAUNCHES[name]()
    assert "wgmma.mma_async" in lower(launch, "cuda:sm_90a")[1]
    emulate(launch, "cuda:sm_90a")
