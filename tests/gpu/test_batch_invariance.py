"""On a GPU, with batch_invariant=True, a product's row and an entry of a batch of attention have the bits that they have alone."""

from __future__ import annotations

import pytest
import torch

from tests.ops.batch_invariance import attentions, products
from tests.ops.layouts import bits
from tests.ops.paged_batches import DTYPES

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_of_a_product(dtype: torch.dtype, transposed: bool) -> None:
    for name, apart, together in products(dtype, transposed, "cuda"):
        assert torch.equal(bits(apart), bits(together)), name


@pytest.mark.parametrize("head_dim", [32, 64, 96, 128, 256])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_entry_of_attention(dtype: torch.dtype, head_dim: int) -> None:
    for name, apart, together in attentions(dtype, head_dim, "cuda"):
        assert torch.equal(bits(apart), bits(together)), name
