"""paged_attention on a GPU: accuracy, the same bits in any batch, and in captured graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.ops.paged_batches import CASES, DTYPES, MIXED, Batch, compare
from tests.ops.test_packed_attention import packed

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


@pytest.mark.parametrize(
    "batch", [batch for batch in CASES if not batch.narrow and not batch.scales], ids=lambda batch: batch.name
)
def test_packed_keys_give_the_bits_of_pages(batch: Batch) -> None:
    (paged, keywords), (rows, _) = packed(batch, torch.bfloat16)
    keywords = {name: x.cuda() if isinstance(x, torch.Tensor) else x for name, x in keywords.items()}
    right = torch.ops.kernelpack.paged_attention(*(x.cuda() for x in paged), **keywords)
    got = torch.ops.kernelpack.packed_attention(*(x.cuda() for x in rows), **keywords)
    assert all(map(torch.equal, got, right))


def test_nothing_is_read_before_the_first_page() -> None:
    """Large tensors get memory of their own, and nothing lies before it."""
    torch.cuda.empty_cache()
    query = torch.randn(512, 8, 128, device="cuda", dtype=torch.bfloat16)
    caches = torch.randn(2, 2048, 16, 8, 128, device="cuda", dtype=torch.bfloat16).unbind()
    table = torch.arange(127, -1, -1, device="cuda", dtype=torch.int32)[None]
    starts, lengths = (torch.tensor(x, device="cuda", dtype=torch.int32) for x in ([0, 512], [2041]))
    bounds = {"max_query_length": 512, "max_key_length": 2041}
    for key, value in (caches, caches[::-1]):
        out, _ = torch.ops.kernelpack.paged_attention(query, key, value, table, starts, lengths, **bounds)
        rows = [x[table[0]].flatten(0, 1)[:2041].transpose(0, 1) for x in (key, value)]
        seen = torch.ones(512, 2041, device="cuda", dtype=torch.bool).tril(2041 - 512)
        right = torch.nn.functional.scaled_dot_product_attention(query.transpose(0, 1), *rows, seen)
        torch.testing.assert_close(out, right.transpose(0, 1), atol=1e-2, rtol=1e-2)


def test_a_cache_without_blocks_gives_nothing() -> None:
    query, cache = torch.randn(20, 4, 64, device="cuda", dtype=torch.bfloat16), torch.empty(0, 16, 2, 64, device="cuda")
    table, starts = torch.empty(1, 0, device="cuda", dtype=torch.int32), torch.tensor([0, 20], device="cuda", dtype=torch.int32)
    args = (query, cache.bfloat16(), cache.bfloat16(), table, starts, torch.zeros(1, device="cuda", dtype=torch.int32))
    out, lse = torch.ops.kernelpack.paged_attention(*args, max_query_length=20, max_key_length=0)
    assert torch.all(out == 0)
    assert torch.all(lse == -float("inf"))
