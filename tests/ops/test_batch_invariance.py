"""With batch_invariant=True a product's row, and an entry of a batch of attention, has the bits that it has alone."""

from __future__ import annotations

import pytest
import torch

from tests.ops.batch_invariance import DTYPES, attentions, products, same_bits

ops = torch.ops.kernelpack


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_of_a_product(dtype: torch.dtype, transposed: bool) -> None:
    for name, apart, together in products(dtype, transposed, "cpu"):
        assert same_bits(apart, together), name


@pytest.mark.parametrize("head_dim", [32, 64, 96])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_entry_of_attention(dtype: torch.dtype, head_dim: int) -> None:
    for name, apart, together in attentions(dtype, head_dim, "cpu"):
        assert same_bits(apart, together), name


def test_without_it_bits_may_differ() -> None:
    """Else the calls above would say nothing."""
    a, b = torch.randn(700, 2048), torch.randn(2048, 520)
    assert not same_bits(ops.matmul(a[:1], b), ops.matmul(a, b)[:1])
    query, key = torch.randn(7, 1, 1, 64), torch.randn(7, 1, 2000, 64)
    threads = torch.get_num_threads()
    torch.set_num_threads(4)  # which share the keys of one, but not those of seven
    try:
        assert not same_bits(ops.mha(query[:1], key[:1], key[:1]), ops.mha(query, key, key)[:1])
    finally:
        torch.set_num_threads(threads)


def test_results_are_right() -> None:
    a, b = torch.randn(70, 300), torch.randn(300, 50)
    torch.testing.assert_close(ops.matmul(a, b, batch_invariant=True), a @ b, rtol=1e-4, atol=1e-4)
    query, key, value = torch.randn(2, 3, 1, 64), torch.randn(2, 3, 1300, 64), torch.randn(2, 3, 1300, 64)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(ops.mha(query, key, value, batch_invariant=True), expected, rtol=1e-4, atol=1e-5)
