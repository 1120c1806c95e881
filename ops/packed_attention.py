"""Attention of sequences that lie one after the other, queries and keys alike, without padding and without pages."""

import kernelpack as kp
import kernelpack.language as tl

from ._paged import PACKED_BITS, CacheStrides
from ._paged_arguments import MAX_HEAD_DIM, Bounds, Keys, check_groups, check_numbers, rules_of
from ._paged_kernels import attend_pages, cpu_blocks, cuda_blocks, hopper_blocks
from ._rows import check_contiguous
from .paged_attention import reference as paged_reference

RANGES = {"dtypes": ("float32", "float16", "bfloat16"), "head_dim": (1, 256)}


def check_packed_keys(x, name):
    """A host function's checks of keys or values."""
    kp.check(x.dim() == 3, f"{name} must have 3 dimensions (keys, kv heads, head size), its shape is {x.shape}")
    kp.check(x.shape[-1] <= MAX_HEAD_DIM, f"{name} has head size {x.shape[-1]}, at most {MAX_HEAD_DIM} is supported")
    check_contiguous(x, name)
    kp.check(x.shape[0] < 2**31, f"{name} has {x.shape[0]} rows, which int32 cannot count")


@kp.op(
    "packed_attention(Tensor query, Tensor key, Tensor value, Tensor query_starts, Tensor key_starts, Tensor key_lengths, *, "
    "SymInt max_query_length, SymInt max_key_length, bool causal=True, int? window=None, float? softcap=None, Tensor? sinks=None, "
    "float? scale=None, bool batch_invariant=False) -> (Tensor out, Tensor lse)",
    variants={
        "query": [tl.float32, tl.float16, tl.bfloat16],
        "key": [kp.same_as("query")],
        "value": [kp.same_as("query")],
        "query_starts": [tl.int32],
        "key_starts": [tl.int32],
        "key_lengths": [tl.int32],
        "sinks": [None, tl.float32],
        "HEAD_DIM": [64, 128, 256],
        "ROWS": [4, 8, 16],  # of few queries that share a key head
    },
    configs={"cpu": cpu_blocks, "cuda": cuda_blocks, "cuda:sm_90a": hopper_blocks},
    specialize=[kp.aligned("query", "key", "value")],
)
def packed_attention(
    query, key, value, query_starts, key_starts, key_lengths, max_query_length, max_key_length, causal, window, softcap, sinks, scale,
    batch_invariant,
):  # fmt: skip
    """Attention of each sequence's queries to its keys, of sequences of any lengths in one call, without padding ("varlen" in
    FlashAttention's terms; Dao, 2023). It has the kernels of paged_attention.

    query [T, H, D] holds the tokens of S sequences one after the other: those from query_starts[i] to query_starts[i + 1]
    (query_starts [S + 1] int32, ascending) are the last ones of sequence i. Its keys are the key_lengths[i] rows of key [K, H_kv, D] and
    value [K, H_kv, D_v] from row key_starts[i] on (both [S] int32): for `cumulative` lengths, key_starts is cumulative[:-1] and
    key_lengths cumulative.diff(). Rows of several sequences may be the same, and some may be nobody's. All have the query's dtype; H is a
    multiple of H_kv, D and D_v are at most 256.

    causal: a query sees keys up to its own, counted from the last. window: of these the last `window` alone. Scores are products times
    `scale` (default: D ** -0.5), and with softcap softcap * tanh(scores / softcap). sinks [H] float32: one more score for each head
    that has no value.

    No sequence may have more than max_query_length queries or max_key_length keys. They decide, without a look at tensors, what is
    launched, so that a captured graph is right for all lengths up to them. batch_invariant: a sequence's result has the same bits
    whatever else is in the batch.

    Returns out [T, H, D_v] in the query's dtype, and lse [H, T] float32, the natural logarithm of the sum of the exponentials of a query's
    scores, the sink's among them. A query that sees no key gives 0, and the sink or -inf. Tokens of no sequence are left as they
    are. On CPUs starts and lengths that point outside of what they index raise an error; on GPUs with KERNELPACK_DEBUG=1.
    """
    kp.check(query.dim() == 3, f"query must have 3 dimensions (tokens, heads, head size), its shape is {query.shape}")
    check_contiguous(query, "query")
    check_packed_keys(key, "key")
    check_packed_keys(value, "value")
    heads, kv_heads = query.shape[1], key.shape[1]
    sequences = key_lengths.shape[0] if key_lengths.dim() > 0 else 0
    kp.check(key.shape[2] == query.shape[2], f"key has head size {key.shape[2]}, query has {query.shape[2]}")
    kp.check(
        key.shape[:2] == value.shape[:2],
        f"value has shape {value.shape}, key has {key.shape}: all but the head size must be equal",
    )
    check_groups(heads, kv_heads, "key")
    check_numbers(key_lengths, "key_lengths", sequences, "one for each sequence")
    check_numbers(key_starts, "key_starts", sequences, "one for each sequence of key_lengths")
    check_numbers(query_starts, "query_starts", sequences + 1, "one for each sequence of key_lengths, and the end")
    if sinks is not None:
        check_numbers(sinks, "sinks", heads, "one for each head of query")
    rules = rules_of(query, causal, window, softcap, scale)
    keys = Keys(
        CacheStrides(key.stride(0), key.stride(0), key.stride(1)), CacheStrides(value.stride(0), value.stride(0), value.stride(1)),
        1, kv_heads, value.shape[2], key.shape[0], PACKED_BITS, 1, key.shape[0], 2**PACKED_BITS,
    )  # fmt: skip
    bounds = Bounds(max_query_length, max_key_length, batch_invariant)
    return attend_pages(query, key, value, key_starts, query_starts, key_lengths, sinks, None, None, keys, bounds, rules)


def reference(
    query, key, value, query_starts, key_starts, key_lengths, *, max_query_length, max_key_length, causal=True, window=None, softcap=None,
    sinks=None, scale=None, batch_invariant=False,
):  # fmt: skip
    """The same by paged_attention's reference: a block is one key."""
    import torch  # builds do without it

    longest = max(key_lengths.tolist(), default=0)
    table = key_starts[:, None] + torch.arange(longest, device=query.device, dtype=torch.int32)
    table = table.clamp(max=max(key.shape[0] - 1, 0))  # columns that no key needs
    return paged_reference(
        query, key[:, None], value[:, None], table, query_starts, key_lengths, max_query_length=max_query_length,
        max_key_length=max_key_length, causal=causal, window=window, softcap=softcap, sinks=sinks, scale=scale,
    )  # fmt: skip
