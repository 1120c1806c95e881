"""mla_decode on a GPU: accuracy, the same bits in any batch, and in captured graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.ops.latent_batches import CASES, arguments, latent, problem
from tests.ops.paged_batches import DTYPES, MIXED, Batch

TIMES = 12
"""Tensor cores cut off bits of each sum of 576 products, which the reference on a CPU rounds: lse shows it, out is rounded to 16 bits."""
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


def _on_gpu(batch: Batch, dtype: torch.dtype) -> tuple[list[torch.Tensor], dict[str, Any]]:
    args, kwargs = arguments(batch, dtype)
    return [x.cuda() for x in args], kwargs


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", CASES, ids=lambda batch: batch.name)
def test_errors_are_those_of_tensor_cores(batch: Batch, dtype: torch.dtype) -> None:
    """Of the reference on a CPU."""
    args, kwargs = _on_gpu(batch, dtype)
    got = torch.ops.kernelpack.mla_decode(*args, **kwargs)
    assert not problem(batch, dtype, tuple(x.cpu() for x in got), TIMES)


@pytest.mark.parametrize("heads", [5, 20])
def test_a_sequence_has_the_same_bits_in_any_batch(heads: int) -> None:
    args, kwargs = _on_gpu(latent("mixed", MIXED, heads=heads, batch_invariant=True), torch.bfloat16)
    query, cache, table, starts, lengths = args
    out, lse = torch.ops.kernelpack.mla_decode(*args, **kwargs)
    for number, (queries, keys) in enumerate(MIXED):
        begin = int(starts[number])
        own = torch.tensor([0, queries], dtype=torch.int32, device="cuda")
        given = (query[begin : begin + queries], cache, table[number : number + 1], own, lengths[number : number + 1])
        bounds = kwargs | {"max_query_length": queries, "max_key_length": keys}
        own_out, own_lse = torch.ops.kernelpack.mla_decode(*given, **bounds)
        assert torch.equal(own_out, out[begin : begin + queries])
        assert torch.equal(own_lse, lse[:, begin : begin + queries])


def test_a_captured_graph_is_right_for_all_lengths_up_to_its_bounds() -> None:
    args, kwargs = _on_gpu(latent("large", ((2, 700), (2, 900), (1, 800))), torch.bfloat16)
    torch.ops.kernelpack.mla_decode(*args, **kwargs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = torch.ops.kernelpack.mla_decode(*args, **kwargs)
    for lengths in (((1, 5), (1, 900), (0, 3)), ((2, 40), (1, 64), (2, 70)), ((2, 700), (2, 900), (1, 800))):
        batch = latent(f"graph {lengths}", lengths)
        here, _ = arguments(batch, torch.bfloat16)
        query, cache, table, starts, keys = here
        used = int(starts[-1])
        args[0][:used] = query.cuda()
        args[1][: len(cache)] = cache.cuda()
        args[2][:, : table.shape[1]] = table.cuda()
        args[3].copy_(starts)
        args[4].copy_(keys)
        graph.replay()
        assert not problem(batch, torch.bfloat16, (results[0][:used].cpu(), results[1][:, :used].cpu()), TIMES)
