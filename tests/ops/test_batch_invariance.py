"""With batch_invariant=True a product's row, and an entry of a batch of attention, has the bits that it has alone."""

from __future__ import annotations

import pytest
import torch

from tests.ops.layouts import bits
from tests.ops.levels import EACH_LEVEL, run_at

ops = torch.ops.kernelpack


@pytest.mark.parametrize("level", EACH_LEVEL)
def test_parts_of_a_batch_have_the_bits_of_the_whole(level: str) -> None:
    done = run_at(level, "-m", "tests.ops.batch_invariance")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_without_it_bits_may_differ() -> None:
    """Else the calls above would say nothing."""
    a, b = torch.randn(700, 2048), torch.randn(2048, 520)
    assert not torch.equal(bits(ops.matmul(a[:1], b)), bits(ops.matmul(a, b)[:1]))
    query, key = torch.randn(7, 1, 1, 64), torch.randn(7, 1, 2000, 64)
    threads = torch.get_num_threads()
    torch.set_num_threads(4)  # which share the keys of one, but not those of seven
    try:
        assert not torch.equal(bits(ops.mha(query[:1], key[:1], key[:1])), bits(ops.mha(query, key, key)[:1]))
    finally:
        torch.set_num_threads(threads)


def test_results_are_right() -> None:
    a, b = torch.randn(70, 300), torch.randn(300, 50)
    torch.testing.assert_close(ops.matmul(a, b, batch_invariant=True), a @ b, rtol=1e-4, atol=1e-4)
    query, key, value = torch.randn(2, 3, 1, 64), torch.randn(2, 3, 1300, 64), torch.randn(2, 3, 1300, 64)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(ops.mha(query, key, value, batch_invariant=True), expected, rtol=1e-4, atol=1e-5)
