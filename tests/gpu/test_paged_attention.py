"""paged_attention on a GPU: accuracy, the same bits in any batch, and in captured graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.ops.paged_batches import CASES, DTYPES, MIXED, Batch, compare

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


def _on_gpu(batch: Batch, dtype: torch.dtype) -> tuple[list[torch.Tensor], dict[str, Any]]:
    args, kwargs = batch.arguments(dtype)
    return [x.cuda() for x in args], {name: x.cuda() if isinstance(x, torch.Tensor) else x for name, x in kwargs.items()}


@pytest.mark.parametrize(
    ("batch", "dtype"),
    [(batch, dtype) for batch in CASES for dtype in batch.dtypes],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_errors_are_at_most_twice_those_of_torch(batch: Batch, dtype: torch.dtype) -> None:
    """Of the reference on a CPU."""
    args, kwargs = _on_gpu(batch, dtype)
    got = torch.ops.kernelpack.paged_attention(*args, **kwargs)
    here, options = batch.arguments(dtype)
    assert not compare(batch.name, tuple(x.cpu() for x in got), here, options)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", [1, 3, 8])
def test_a_sequence_has_the_same_bits_in_any_batch(dtype: torch.dtype, group: int) -> None:
    args, kwargs = _on_gpu(Batch("mixed", MIXED, heads=2 * group, sinks=True, options={"batch_invariant": True}), dtype)
    query, key, value, table, starts, lengths = args
    out, lse = torch.ops.kernelpack.paged_attention(*args, **kwargs)
    begin = 0
    for number, (queries, keys) in enumerate(MIXED):
        own = torch.tensor([0, queries], dtype=torch.int32, device="cuda")
        given = (query[begin : begin + queries], key, value, table[number : number + 1], own, lengths[number : number + 1])
        bounds = kwargs | {"max_query_length": queries, "max_key_length": keys}
        own_out, own_lse = torch.ops.kernelpack.paged_attention(*given, **bounds)
        assert torch.equal(own_out, out[begin : begin + queries])
        assert torch.equal(own_lse, lse[:, begin : begin + queries])
        begin += queries
    assert begin == int(starts[-1])


def test_a_captured_graph_is_right_for_all_lengths_up_to_its_bounds() -> None:
    large = Batch("large", ((40, 700), (30, 900), (1, 800), (1, 300)))
    args, kwargs = _on_gpu(large, torch.bfloat16)
    torch.ops.kernelpack.paged_attention(*args, **kwargs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = torch.ops.kernelpack.paged_attention(*args, **kwargs)
    for lengths in (((1, 5), (1, 900), (0, 3), (1, 1)), ((40, 40), (1, 64), (5, 70), (20, 300)), large.lengths):
        here, _ = Batch(f"graph {lengths}", lengths).arguments(torch.bfloat16)
        query, key, value, table, starts, keys = here
        used = int(starts[-1])
        args[0][:used] = query.cuda()
        args[1][: len(key)], args[2][: len(value)] = key.cuda(), value.cuda()
        args[3][:, : table.shape[1]] = table.cuda()
        args[4].copy_(starts)
        args[5].copy_(keys)
        graph.replay()
        got = results[0][:used].cpu(), results[1][:, :used].cpu()
        assert not compare(str(lengths), got, here, kwargs)
