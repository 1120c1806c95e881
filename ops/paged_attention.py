"""Attention of decoding rows and prefill chunks, in one call, to keys and values that lie in pages."""

import math

import kernelpack as kp
import kernelpack.language as tl

from ._paged import CacheStrides
from ._paged_arguments import (
    Bounds,
    Keys,
    check_block_size,
    check_cache,
    check_groups,
    check_numbers,
    check_scale,
    check_table,
    rules_of,
)
from ._paged_kernels import attend_pages, cpu_blocks, cuda_blocks, hopper_blocks
from ._rows import check_contiguous

RANGES = {"dtypes": ("float32", "float16", "bfloat16"), "head_dim": (1, 256)}


def is_narrow(point):
    """Whether the cache of a variant is in 8 bits."""
    return point["key_cache"] == tl.float8e4nv


@kp.op(
    "paged_attention(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_table, Tensor query_starts, Tensor key_lengths, *, "
    "SymInt max_query_length, SymInt max_key_length, bool causal=True, int? window=None, float? softcap=None, Tensor? sinks=None, "
    "float? scale=None, Tensor? key_scale=None, Tensor? value_scale=None, bool batch_invariant=False) -> (Tensor out, Tensor lse)",
    variants={
        "query": [tl.float32, tl.float16, tl.bfloat16],
        "key_cache": [kp.same_as("query"), tl.float8e4nv],
        "value_cache": [kp.same_as("key_cache")],
        "block_table": [tl.int32],
        "query_starts": [tl.int32],
        "key_lengths": [tl.int32],
        "sinks": [None, tl.float32],
        "key_scale": [None, tl.float32],
        "value_scale": [None, tl.float32],
        "HEAD_DIM": [64, 128, 256],
        "ROWS": [4, 8, 16],  # of few queries that share a key head
    },
    configs={
        "cpu": lambda point: cpu_blocks(point, is_narrow(point)),
        "cuda": lambda point: cuda_blocks(point, is_narrow(point)),
        "cuda:sm_90a": lambda point: hopper_blocks(point, is_narrow(point)),
    },
    specialize=[kp.aligned("query", "key_cache", "value_cache")],
)
def paged_attention(
    query, key_cache, value_cache, block_table, query_starts, key_lengths, max_query_length, max_key_length, causal, window, softcap,
    sinks, scale, key_scale, value_scale, batch_invariant,
):  # fmt: skip
    """Attention of each sequence's queries to its keys, which lie in blocks of a cache: decoding rows and prefill chunks of any length
    together (PagedAttention; Kwon et al., 2023).

    query [T, H, D] holds the tokens of S sequences one after the other: those from query_starts[i] to query_starts[i + 1]
    (query_starts [S + 1] int32, ascending) are the last ones of sequence i, which has key_lengths[i] keys (key_lengths [S] int32,
    those of the queries included). key_cache [blocks, block size, H_kv, D] and value_cache [blocks, block size, H_kv, D_v] have the
    query's dtype, or float8_e4m3fn where that is bfloat16 and D and D_v at most 128; H is a multiple of H_kv, D and D_v are at most 256, the block size is a power of two from 16 on. Key j of sequence i is
    row j % block size of block block_table[i, j // block size] (block_table [S, columns] int32).

    causal: a query sees keys up to its own, counted from the last. window: of these the last `window` alone. Scores are products times
    `scale` (default: D ** -0.5) times key_scale, and with softcap softcap * tanh(scores / softcap). sinks [H] float32: one more
    score for each head that has no value. key_scale and value_scale, float32 of shape [1] or [H_kv], multiply keys and values.

    No sequence may have more than max_query_length queries or max_key_length keys. They decide, without a look at tensors, what is
    launched, so that a captured graph is right for all lengths up to them. batch_invariant: a sequence's result has the same bits
    whatever else is in the batch.

    Returns out [T, H, D_v] in the query's dtype, and lse [H, T] float32, the natural logarithm of the sum of the exponentials of a query's
    scores, the sink's among them. A query that sees no key gives 0, and the sink or -inf. Tokens of no sequence are left as they
    are. On CPUs lengths and blocks that point outside of what they index raise an error; on GPUs with KERNELPACK_DEBUG=1.
    """
    kp.check(query.dim() == 3, f"query must have 3 dimensions (tokens, heads, head size), its shape is {query.shape}")
    check_contiguous(query, "query")
    check_cache(key_cache, "key_cache")
    check_cache(value_cache, "value_cache")
    heads, head_dim = query.shape[1], query.shape[2]
    blocks, block_size, kv_heads, value_dim = (
        value_cache.shape[0],
        value_cache.shape[1],
        value_cache.shape[2],
        value_cache.shape[3],
    )
    sequences = key_lengths.shape[0] if key_lengths.dim() > 0 else 0
    kp.check(key_cache.shape[3] == head_dim, f"key_cache has head size {key_cache.shape[3]}, query has {head_dim}")
    kp.check(
        key_cache.shape[:3] == value_cache.shape[:3],
        f"value_cache has shape {value_cache.shape}, key_cache has {key_cache.shape}: all but the head size must be equal",
    )
    check_block_size(block_size, "key_cache")
    check_groups(heads, kv_heads, "key_cache")
    check_numbers(key_lengths, "key_lengths", sequences, "one for each sequence")
    check_numbers(query_starts, "query_starts", sequences + 1, "one for each sequence of key_lengths, and the end")
    check_table(block_table, sequences)
    if sinks is not None:
        check_numbers(sinks, "sinks", heads, "one for each head of query")
    check_scale(key_scale, "key_scale", kv_heads)
    check_scale(value_scale, "value_scale", kv_heads)
    rules = rules_of(query, causal, window, softcap, scale)
    keys = Keys(
        CacheStrides(key_cache.stride(0), key_cache.stride(1), key_cache.stride(2)),
        CacheStrides(value_cache.stride(0), value_cache.stride(1), value_cache.stride(2)),
        block_table.stride(0), kv_heads, value_dim, blocks, int(math.log2(block_size)), blocks, block_size,
        min(block_table.shape[1] * block_size, 2**30),
    )  # fmt: skip
    bounds = Bounds(max_query_length, max_key_length, batch_invariant)
    return attend_pages(
        query,
        key_cache,
        value_cache,
        block_table,
        query_starts,
        key_lengths,
        sinks,
        key_scale,
        value_scale,
        keys,
        bounds,
        rules,
    )


def gathered(cache, scale, blocks, keys, heads, dtype):
    """Returns the rows of one sequence as [heads, keys, head size], key heads repeated for the query heads that share them."""
    found = cache[blocks].flatten(0, 1)[:keys].to(dtype)
    if scale is not None:
        found = found * scale.to(dtype)[:, None]
    return found.repeat_interleave(heads // max(cache.shape[2], 1), 1).transpose(0, 1)


def reference(
    query, key_cache, value_cache, block_table, query_starts, key_lengths, *, max_query_length, max_key_length, causal=True, window=None,
    softcap=None, sinks=None, scale=None, key_scale=None, value_scale=None, batch_invariant=False,
):  # fmt: skip
    """The same in plain torch, one sequence after the other: scores in float32 at least, weights and values in the query's dtype."""
    import torch  # builds do without it

    tokens, heads, size = query.shape
    block_size = key_cache.shape[1]
    dtype = torch.promote_types(query.dtype, torch.float32)
    out = query.new_zeros(tokens, heads, value_cache.shape[3])
    lse = torch.full((heads, tokens), -float("inf"), dtype=dtype, device=query.device)
    starts = query_starts.tolist()
    for number, keys in enumerate(key_lengths.tolist()):
        begin, end = starts[number], starts[number + 1]
        blocks = block_table[number, : -(-keys // block_size)].long()
        scores = query[begin:end].to(dtype).transpose(0, 1) @ gathered(key_cache, key_scale, blocks, keys, heads, dtype).mT
        scores = scores * (size**-0.5 if scale is None else scale)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        if causal:
            own = keys - (end - begin) + torch.arange(end - begin, device=query.device)[:, None]
            column = torch.arange(keys, device=query.device)
            counts = (column <= own) & (column > own - (window or 2**31))
            scores = scores.masked_fill(~counts, -float("inf"))
        sink = scores.new_full((heads,), -float("inf")) if sinks is None else sinks.to(dtype)
        whole = torch.cat((scores, sink[:, None, None].expand(heads, end - begin, 1)), -1).logsumexp(-1)
        weights = torch.exp(scores - torch.where(whole == -float("inf"), 0.0, whole)[..., None]).to(query.dtype)
        values = gathered(value_cache, value_scale, blocks, keys, heads, dtype).to(query.dtype)
        out[begin:end] = (weights @ values).transpose(0, 1)
        lse[:, begin:end] = whole
    return out, lse
