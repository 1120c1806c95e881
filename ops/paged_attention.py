"""Attention of decoding rows and prefill chunks, in one call, to keys and values that lie in pages."""

import math

import kernelpack as kp
import kernelpack.language as tl

from ._attend import no_sums
from ._decode import DECODE_HEADS, DECODE_PROGRAMS
from ._paged import (
    CacheStrides,
    Limits,
    Optional,
    PagedForm,
    PagedSizes,
    PagedStrides,
    RowStrides,
    Rules,
    finished,
    pages_of,
    rows_of,
    sequence_of,
    unit_of,
    walk_all,
    with_parts,
)

RANGES = {
    "dtypes": ("float32", "float16", "bfloat16"),
    "head_dim": (1, 128),
    "block_size": (16, 32, 64, 128, 256),
}

CHUNK = 512
"""How many keys a program takes where few rows share them: on CPUs, and where results must not depend on what else is in a batch."""


@kp.jit
def load_query(query, sequence, rows, head, strides, sizes, HEAD_DIM: tl.constexpr):
    """Returns the queries of a tile of rows."""
    columns = tl.arange(0, HEAD_DIM)
    tokens, heads = (sequence.token + rows.tokens).to(tl.int64), (head * sizes.group + rows.heads).to(tl.int64)
    at = tokens * strides.query.token + heads * strides.query.head
    inside = rows.inside[:, None] & (columns[None, :] < sizes.head_dim)
    return tl.load(query + at[:, None] + columns[None, :], mask=inside, other=0.0)


@kp.jit
def store_result(out, lse, means, logs, sequence, rows, head, strides, sizes):
    """Stores the results of a tile of rows."""
    columns = tl.arange(0, means.shape[1])
    tokens, heads = (sequence.token + rows.tokens).to(tl.int64), (head * sizes.group + rows.heads).to(tl.int64)
    at = tokens * strides.out.token + heads * strides.out.head
    inside = rows.inside[:, None] & (columns[None, :] < sizes.value_dim)
    tl.store(out + at[:, None] + columns[None, :], means.to(out.dtype.element_ty), mask=inside)
    tl.store(lse + heads * sizes.tokens + tokens, logs, mask=rows.inside)


@kp.jit
def sequence_number(block, query_starts, sizes, BLOCK_M: tl.constexpr):
    """Returns the sequence that a block of rows belongs to, and the block's number among those of the sequence: sequence i has the blocks
    from query_starts[i] * group // BLOCK_M + i on, which are enough of them."""
    numbers = tl.arange(0, 64)
    count = 0
    for first in range(0, sizes.sequences, 64):
        inside = first + numbers < sizes.sequences
        starts = tl.load(query_starts + first + numbers, mask=inside, other=0) * sizes.group // BLOCK_M + first + numbers
        count += tl.sum(tl.where(inside & (starts <= block), 1, 0), 0)
    number = tl.maximum(count - 1, 0)
    return number, block - (tl.load(query_starts + number) * sizes.group // BLOCK_M + number)


@kp.jit
def paged_block(
    query, key_cache, value_cache, block_table, query_starts, key_lengths, options, out, lse, strides, sizes, limits, rules,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WITHIN: tl.constexpr, SPLIT: tl.constexpr,
    CHECKED: tl.constexpr,
):  # fmt: skip
    """One block of rows of one sequence and key head."""
    form: tl.constexpr = PagedForm(BLOCK_N, WITHIN, SPLIT, CHECKED)
    number, block = sequence_number(tl.program_id(0), query_starts, sizes, BLOCK_M)
    head = tl.program_id(1).to(tl.int64)
    sequence = sequence_of(number, query_starts, key_lengths, limits, CHECKED)
    if (sequence.queries * sizes.group > sizes.few) & (block * BLOCK_M < sequence.queries * sizes.group):
        rows = rows_of(sequence, block * BLOCK_M + tl.arange(0, BLOCK_M), sizes.group, rules)
        q = load_query(query, sequence, rows, head, strides, sizes, HEAD_DIM)
        pages = pages_of(number, head, key_cache, value_cache, block_table, strides, sizes)
        unit = unit_of(rules, options, head, strides.key_scale)
        sums = no_sums(BLOCK_M, HEAD_DIM)
        sums = walk_all(sums, q, pages, rows, 0, sequence.keys, unit, rules, sizes, form)
        means, logs = finished(sums, rows, head, options, sizes, strides.value_scale)
        store_result(out, lse, means, logs, sequence, rows, head, strides, sizes)


@kp.jit
def paged_part(
    query, key_cache, value_cache, block_table, query_starts, key_lengths, options, partial, weights, out, lse, strides, sizes, limits,
    rules, chunk,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WITHIN: tl.constexpr, SPLIT: tl.constexpr,
    CHECKED: tl.constexpr,
):  # fmt: skip
    """`chunk` keys of one key head, a multiple of BLOCK_N, for all rows of a sequence of at most `few` rows; the last part takes what is left.

    One part gives out and lse. Of several, partial [sequences * kv_heads, parts, few, value_dim] gets sums that are not yet divided,
    weights [sequences * kv_heads, parts, few, 2] the maximum of the scores in units of log2(e) and the sum of exponentials relative to it.
    """
    form: tl.constexpr = PagedForm(BLOCK_N, WITHIN, SPLIT, CHECKED)
    number, part, parts = tl.program_id(0) // sizes.kv_heads, tl.program_id(1), tl.num_programs(1)
    head = (tl.program_id(0) % sizes.kv_heads).to(tl.int64)
    sequence = sequence_of(number, query_starts, key_lengths, limits, CHECKED)
    count = sequence.queries * sizes.group
    first = part * chunk
    if (count > 0) & (count <= sizes.few) & ((first < sequence.keys) | (parts == 1)):
        rows = rows_of(sequence, tl.arange(0, BLOCK_M), sizes.group, rules)
        q = load_query(query, sequence, rows, head, strides, sizes, HEAD_DIM)
        if BLOCK_M < 16:
            q = q.to(tl.float32)
        pages = pages_of(number, head, key_cache, value_cache, block_table, strides, sizes)
        unit = unit_of(rules, options, head, strides.key_scale)
        stop = sequence.keys if part == parts - 1 else tl.minimum(sequence.keys, first + chunk)
        sums = walk_all(no_sums(BLOCK_M, HEAD_DIM), q, pages, rows, first, stop, unit, rules, sizes, form)
        if parts == 1:
            means, logs = finished(sums, rows, head, options, sizes, strides.value_scale)
            store_result(out, lse, means, logs, sequence, rows, head, strides, sizes)
        else:
            columns = tl.arange(0, HEAD_DIM)
            at = (tl.program_id(0).to(tl.int64) * parts + part) * sizes.few + tl.arange(0, BLOCK_M)
            in_tile = rows.inside[:, None] & (columns[None, :] < sizes.value_dim)
            tl.store(partial + at[:, None] * sizes.value_dim + columns[None, :], sums.values, mask=in_tile)
            tl.store(weights + at * 2, sums.largest, mask=rows.inside)
            tl.store(weights + at * 2 + 1, sums.weights, mask=rows.inside)


@kp.jit
def paged_sum(
    query_starts, key_lengths, options, partial, weights, out, lse, strides, sizes, limits, rules, parts, chunk,
    HEAD_DIM: tl.constexpr, PARTS: tl.constexpr, CHECKED: tl.constexpr,
):  # fmt: skip
    """One row of one sequence and key head: the parts, each weighed by what its maximum is below the highest. Layouts are those of
    paged_part."""
    number, row = tl.program_id(0) // sizes.kv_heads, tl.program_id(1)
    head = (tl.program_id(0) % sizes.kv_heads).to(tl.int64)
    sequence = sequence_of(number, query_starts, key_lengths, limits, CHECKED)
    count = sequence.queries * sizes.group
    if (row < count) & (count <= sizes.few):
        rows = rows_of(sequence, row + tl.arange(0, 1), sizes.group, rules)
        columns, places = tl.arange(0, HEAD_DIM), tl.arange(0, PARTS)
        own = tl.minimum(parts, tl.cdiv(sequence.keys, chunk))
        sums = no_sums(1, HEAD_DIM)
        for first in range(0, own, PARTS):
            inside = first + places < own
            at = (tl.program_id(0).to(tl.int64) * parts + first + places) * sizes.few + row
            tops = tl.load(weights + at * 2, mask=inside, other=-float("inf"))
            sizes_of = tl.load(weights + at * 2 + 1, mask=inside, other=0.0)
            in_tile = inside[:, None] & (columns[None, :] < sizes.value_dim)
            tile = tl.load(partial + at[:, None] * sizes.value_dim + columns[None, :], mask=in_tile, other=0.0)
            sums = with_parts(sums, tops, sizes_of, tile)
        means, logs = finished(sums, rows, head, options, sizes, strides.value_scale)
        store_result(out, lse, means, logs, sequence, rows, head, strides, sizes)


def cpu_config(point):
    """On CPUs, 16 keys are always of one block of the cache, and checking them costs nothing that could be measured."""
    if point.kernel == "paged_sum":
        return kp.Config({"PARTS": 16, "CHECKED": True}) if point["ROWS"] == 16 else None
    blocks = {"BLOCK_M": point["ROWS"] if point.kernel == "paged_part" else 64, "BLOCK_N": 16, "WITHIN": True, "SPLIT": False}
    return kp.Config({**blocks, "CHECKED": True})


def cuda_config(point):
    """Products on GPUs have 16 rows at least."""
    if point["ROWS"] != 16:
        return None
    checked = kp.knobs.runtime.debug
    if point.kernel == "paged_sum":
        return kp.Config({"PARTS": 16, "CHECKED": checked}, num_warps=4, specialize=False)
    size, wide = point["HEAD_DIM"], point["query"] == tl.float32
    if point.kernel == "paged_part":
        rows, columns, warps, stages = 16, 32 if wide else 64, 4, 2
    elif wide:
        rows, columns, warps, stages = 64, 32 if size == 64 else 16, 4, 2
    else:
        rows, columns, warps, stages = 128 if size == 64 else 64, 64, 4, 3 if size == 64 else 2
    split = point.specialized and not wide
    blocks = {"BLOCK_M": rows, "BLOCK_N": columns, "WITHIN": False, "SPLIT": split, "CHECKED": checked}
    return kp.Config(blocks, num_warps=warps, num_stages=stages)


@kp.op(
    "paged_attention(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_table, Tensor query_starts, Tensor key_lengths, *, "
    "int max_query_length, int max_key_length, bool causal=True, int? window=None, float? softcap=None, Tensor? sinks=None, "
    "float? scale=None, Tensor? key_scale=None, Tensor? value_scale=None, bool batch_invariant=False) -> (Tensor out, Tensor lse)",
    variants={
        "query": [tl.float32, tl.float16, tl.bfloat16],
        "key_cache": [kp.same_as("query")],
        "value_cache": [kp.same_as("query")],
        "block_table": [tl.int32],
        "query_starts": [tl.int32],
        "key_lengths": [tl.int32],
        "sinks": [None, tl.float32],
        "key_scale": [None, tl.float32],
        "value_scale": [None, tl.float32],
        "HEAD_DIM": [64, 128],
        "ROWS": [4, 16],
    },
    configs={"cpu": cpu_config, "cuda": cuda_config},
    specialize=[kp.aligned("query", "key_cache", "value_cache")],
)
def paged_attention(
    query, key_cache, value_cache, block_table, query_starts, key_lengths, max_query_length, max_key_length, causal, window, softcap,
    sinks, scale, key_scale, value_scale, batch_invariant,
):  # fmt: skip
    tokens, heads, head_dim = query.shape[0], query.shape[1], query.shape[2]
    blocks, block_size, kv_heads, value_dim = value_cache.shape[0], value_cache.shape[1], value_cache.shape[2], value_cache.shape[3]
    sequences = key_lengths.shape[0]
    group = heads // max(kv_heads, 1)
    out = kp.empty((tokens, heads, value_dim), query.dtype, query.device)
    lse = kp.empty((heads, tokens), tl.float32, query.device)
    if scale is None:
        scale = 1.0 / math.sqrt(max(head_dim, 1))
    if softcap is None:
        softcap = 0.0
    if window is None:
        window = 0
    size = max(kp.next_power_of_2(max(head_dim, value_dim)), 64)
    reach = max_query_length * group
    few = 4 if group <= 4 and not (4 < reach and reach <= 16 and not batch_invariant) else 16
    chunk = CHUNK
    if query.is_cuda:
        few = 16
        if not batch_invariant:
            share = kp.cdiv(max_key_length * sequences * kv_heads, DECODE_PROGRAMS)
            chunk = 1024 if sequences * kv_heads >= DECODE_HEADS else max(64, min(1024, kp.cdiv(share, 64) * 64))
    parts = max(kp.cdiv(max_key_length, chunk), 1)
    shared = parts if parts > 1 else 0
    partial = kp.empty((sequences * kv_heads, shared, few, value_dim), tl.float32, query.device)
    weights = kp.empty((sequences * kv_heads, shared, few, 2), tl.float32, query.device)
    strides = PagedStrides(
        RowStrides(query.stride(0), query.stride(1)),
        CacheStrides(key_cache.stride(0), key_cache.stride(1), key_cache.stride(2)),
        CacheStrides(value_cache.stride(0), value_cache.stride(1), value_cache.stride(2)),
        RowStrides(out.stride(0), out.stride(1)),
        block_table.stride(0),
        0 if key_scale is None else (key_scale.stride(0) if key_scale.shape[0] > 1 else 0),
        0 if value_scale is None else (value_scale.stride(0) if value_scale.shape[0] > 1 else 0),
    )
    sizes = PagedSizes(sequences, kv_heads, group, tokens, head_dim, value_dim, blocks, int(math.log2(block_size)), few)
    limits = Limits(tokens, max_query_length, max_key_length, block_table.shape[1] * block_size)
    rules = Rules(causal, window, softcap, scale)
    options = Optional(
        lse if sinks is None else sinks, lse if key_scale is None else key_scale, lse if value_scale is None else value_scale,
        sinks is not None, key_scale is not None, value_scale is not None,
    )
    paged_part[(sequences * kv_heads, parts)](
        query, key_cache, value_cache, block_table, query_starts, key_lengths, options, partial, weights, out, lse, strides, sizes,
        limits, rules, chunk, HEAD_DIM=size, ROWS=few,
    )
    if parts > 1:
        paged_sum[(sequences * kv_heads, min(few, reach))](
            query_starts, key_lengths, options, partial, weights, out, lse, strides, sizes, limits, rules, parts, chunk,
            HEAD_DIM=size, ROWS=16,
        )
    if reach > few:
        paged_block[lambda meta: (tokens * group // meta["BLOCK_M"] + sequences, kv_heads)](
            query, key_cache, value_cache, block_table, query_starts, key_lengths, options, out, lse, strides, sizes, limits, rules,
            HEAD_DIM=size, ROWS=16,
        )
    return out, lse
