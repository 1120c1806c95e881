"""Attention of a few queries to many keys: programs share the keys of a head, a second kernel adds up their parts.

The algorithm is Flash-Decoding (Dao, Haziza, Massa and Sizov, 2023). All queries that share a key head lie in one tile, so every key
and value is read once.
"""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl

from ._attend import Form, MaskStrides, Source, Strides, Sums, attend, exponent_of, load_bias, mean_of, no_sums, strides_of
from ._exponents import LOG2_E
from ._roles import begin_early, early

DECODE_PROGRAMS = 264
"""How many programs should share the keys: two for each multiprocessor of an H100, with at most 1024 keys for one."""

DECODE_HEADS = 128
"""From so many key heads on, of all batches, programs take 1024 keys: nearly one for each multiprocessor at least."""


DECODE_ROWS = (1, 4, 8, 16)
"""For how many queries that share a key head there are kernels. GPUs have one, for 16: their products have as many rows at least."""


class SharedSizes(NamedTuple):
    """`group` times `queries` rows share a key head."""

    kv_heads: int
    group: int
    queries: int
    keys: int
    head_dim: int
    value_dim: int


class PartStrides(NamedTuple):
    """The strides of all tensors but those that parts leave their sums in."""

    query: Strides
    key: Strides
    value: Strides
    out: Strides


class Bias(NamedTuple):
    """What is added to scores that are scaled, if anything: where it begins, and how far apart it lies for batches, heads and queries.
    That of keys lies side by side."""

    start: tl.tensor
    given: tl.int1
    batch: tl.int64
    head: tl.int64
    row: tl.int64


@kp.jit
def decode_bias(attn_mask, bias, strides, heads, queries, keys, BLOCK: tl.constexpr):
    """Writes what a mask adds to the scores of one query, as Bias says."""
    number = tl.program_id(0).to(tl.int64)
    batch, head, query = number // (heads * queries), number // queries % heads, number % queries
    row = attn_mask + batch * strides.batch + head * strides.head + query * strides.row
    for first in range(0, keys, BLOCK):
        key = first + tl.arange(0, BLOCK)
        inside = key < keys
        if strides.column == 1:
            loaded = load_bias(row + key, inside)
        else:
            loaded = load_bias(row + key * strides.column, inside)
        tl.store(bias + number * keys + key, loaded, mask=inside)


@kp.jit
def attend_few(sums, q, source, bias, given, start, stop, sizes, scale, BLOCK_N: tl.constexpr):
    """As `attend`, for so few queries that transposing keys for a product would take longer than the products of their elements. There
    is one key at least. `bias` [rows] are pointers to what is added for the first key, if it is given. Returns half the maxima in units of
    log2(e)."""
    sign = tl.where(scale < 0.0, -1.0, tl.where(scale == 0.0, 0.0, 1.0))
    q = q.to(tl.float32) * sign  # the largest product is then the largest score
    unit = tl.where(tl.abs(scale) < 2.0**-126, 2.0**-126, tl.abs(scale))  # a scale of NaN stays one
    rest = tl.where(given, 1.0, unit) * LOG2_E  # scores with a bias are scaled: the lowest float stays finite
    offs_n, offs_d = source.numbers, tl.arange(0, q.shape[1])
    k_tile = source.key + offs_n[:, None] * source.key_step + offs_d[None, :]
    v_tile = source.value + offs_n[:, None] * source.value_step + offs_d[None, :]
    for n in range(start, stop, BLOCK_N):
        inside = n + offs_n < stop
        k_inside = inside[:, None] & (offs_d[None, :] < sizes.head_dim)
        k = tl.load(k_tile + n.to(tl.int64) * source.key_step, mask=k_inside, other=0.0).to(tl.float32)
        scores = tl.sum(q[:, None, :] * k[None, :, :], axis=2)
        if given:
            added = tl.load(bias[:, None] + (n + offs_n)[None, :], mask=inside[None, :], other=-float("inf"))
            scores = tl.where(added == -float("inf"), -float("inf"), scores * unit + added)
        scores = tl.where(inside[None, :], scores, -float("inf"))
        largest = tl.maximum(sums.largest, tl.max(scores, axis=1))
        finite = tl.where(largest == -float("inf"), 0.0, largest)  # products of -inf alone: no weight, not NaN
        p = tl.exp2((scores - finite[:, None]) * rest)
        rescale = tl.exp2((sums.largest - finite) * rest)
        weights = sums.weights * rescale + tl.sum(p, axis=1)
        v_inside = inside[:, None] & (offs_d[None, :] < sizes.value_dim)
        v = tl.load(v_tile + n.to(tl.int64) * source.value_step, mask=v_inside, other=0.0).to(tl.float32)
        values = tl.dot(p, v, sums.values * rescale[:, None], input_precision="ieee")
        sums = Sums(weights, largest, values)
    return Sums(sums.weights, sums.largest * (rest * 0.5), sums.values)


@kp.jit
def decode_part(
    query, key, value, partial, weights, out, bias, strides, sizes, scale, chunk,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """`chunk` keys of one key head, a multiple of BLOCK_N, for all rows that share it, at most BLOCK_M.

    One part gives out, [batches, kv_heads * group, queries, value_dim]. Of several, partial [heads, parts, rows, value_dim] gets
    sums that are not yet divided, weights [heads, parts, rows, 2] half the maximum of the scores in units of log2(e), which is
    finite for the lowest float too, and the sum of exponentials relative to it. SPLIT is that of mha_block. Fewer than 16 rows know a bias.
    """
    begin_early()
    form: tl.constexpr = Form(False, BLOCK_N, False, True)
    batch = (tl.program_id(0) // sizes.kv_heads).to(tl.int64)
    head = (tl.program_id(0) % sizes.kv_heads).to(tl.int64)
    rows = tl.arange(0, BLOCK_M)
    numbers = tl.arange(0, BLOCK_N)
    columns = tl.arange(0, HEAD_DIM)
    inside = rows < sizes.group * sizes.queries
    query += batch * strides.query.batch + head * sizes.group * strides.query.head
    key += batch * strides.key.batch + head * strides.key.head
    value += batch * strides.value.batch + head * strides.value.head
    source = Source(numbers, key, value, None, strides.key.row, strides.value.row, 0, 0)
    heads, queries = rows // sizes.queries, rows % sizes.queries
    q_rows = query + heads * strides.query.head + queries * strides.query.row
    q = tl.load(q_rows[:, None] + columns[None, :], mask=inside[:, None] & (columns[None, :] < sizes.head_dim), other=0.0)
    sums = no_sums(BLOCK_M, HEAD_DIM)
    first = tl.program_id(1) * chunk
    stop = tl.minimum(sizes.keys, first + chunk)
    if BLOCK_M < 16:
        at = batch * bias.batch + tl.where(inside, (head * sizes.group + heads) * bias.head + queries * bias.row, 0)
        sums = attend_few(sums, q, source, bias.start + at, bias.given, first, stop, sizes, scale, BLOCK_N)
    else:
        whole = first
        if SPLIT:
            whole += (stop - first) // BLOCK_N * BLOCK_N
            sums = attend(sums, q, source, rows, first, whole, sizes, scale, 0, False, form)
        sums = attend(sums, q, source, rows, whole, stop, sizes, scale, 0, True, form)
        sums = Sums(sums.weights, exponent_of(sums.largest, q.dtype) * 0.5, sums.values)
    in_tile = inside[:, None] & (columns[None, :] < sizes.value_dim)
    if tl.num_programs(1) == 1:
        result = mean_of(sums)
        out += batch * strides.out.batch
        q_head = head * sizes.group + rows // sizes.queries
        out_rows = out + q_head * strides.out.head + rows % sizes.queries * strides.out.row
        tl.store(out_rows[:, None] + columns[None, :], result.to(out.dtype.element_ty), mask=in_tile)
    else:
        part = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
        at = part * (sizes.group * sizes.queries) + rows
        tl.store(partial + at[:, None] * sizes.value_dim + columns[None, :], sums.values, mask=in_tile)
        tl.store(weights + at * 2, sums.largest, mask=inside)
        tl.store(weights + at * 2 + 1, sums.weights, mask=inside)


@kp.jit
def decode_sum(partial, weights, out, strides, sizes, parts, HEAD_DIM: tl.constexpr, PARTS: tl.constexpr):
    """One row of one head: the parts, each weighed by what its maximum is below the highest. Layouts are those of decode_part."""
    begin_early()
    head, row = tl.program_id(0).to(tl.int64), tl.program_id(1)
    rows = sizes.group * sizes.queries
    places = tl.arange(0, PARTS)
    columns = tl.arange(0, HEAD_DIM)
    total = tl.zeros([HEAD_DIM], tl.float32)
    highest = -float("inf")
    weight = 0.0
    for first in range(0, parts, PARTS):
        inside = first + places < parts
        at = (head * parts + first + places) * rows + row
        tops = tl.load(weights + at * 2, mask=inside, other=-float("inf"))
        own = tl.load(weights + at * 2 + 1, mask=inside, other=0.0)
        in_tile = inside[:, None] & (columns[None, :] < sizes.value_dim)
        tile = tl.load(partial + at[:, None] * sizes.value_dim + columns[None, :], mask=in_tile, other=0.0)
        above = tl.maximum(highest, tl.max(tops, 0))
        finite = tl.where(above == -float("inf"), 0.0, above)  # scores of -inf alone: no weight, not NaN
        grow = tl.exp2((tops - finite) * 2.0)
        shrink = tl.exp2((highest - finite) * 2.0)
        total = total * shrink + tl.sum(tile * grow[:, None], 0)
        weight = weight * shrink + tl.sum(own * grow, 0)
        highest = above
    total = total / tl.where(weight == 0.0, 1.0, weight)
    out += (
        head // sizes.kv_heads * strides.batch
        + (head % sizes.kv_heads * sizes.group + row // sizes.queries) * strides.head
        + row % sizes.queries * strides.row
    )
    tl.store(out + columns, total.to(out.dtype.element_ty), mask=columns < sizes.value_dim)


def decode_config(point):
    """Returns the config of decode_bias, decode_part or decode_sum. On GPUs 16-bit keys only."""
    cpu = point.target.backend == "cpu"
    if point.kernel == "decode_bias":
        return kp.Config({"BLOCK": 64}) if cpu and point["attn_mask"] is not None else None
    size = point["HEAD_DIM"]
    if size == 32 or (not cpu and point["query"] == tl.float32):
        return None
    if point.kernel == "decode_sum":
        return kp.Config({"PARTS": 16}, num_warps=4, launch_pdl=early(point))
    if cpu:
        return kp.Config({"BLOCK_M": point["ROWS"], "BLOCK_N": 16 if point["ROWS"] < 16 else 64, "SPLIT": False})
    if point["ROWS"] < 16:
        return None
    blocks = {"BLOCK_M": 16, "BLOCK_N": 32 if size == 256 else 64, "SPLIT": True}
    return kp.Config(blocks, num_warps=4, num_stages=2, launch_pdl=early(point))


INVARIANT_CHUNK = 512
"""How many keys a program takes where results must not depend on what else is in a batch."""


def decode(query, key, value, attn_mask, mask_strides, out, group, scale, batch_invariant):
    """A host function's launches for few queries: `group` heads of them, at most DECODE_ROWS[-1] in all, share a key head. On CPUs those of
    fewer rows may have a mask."""
    batches = query.shape[0] if query.dim() == 4 else 1
    heads = batches * key.shape[-3]
    queries, keys = query.shape[-2], key.shape[-2]
    rows, value_dim = group * queries, value.shape[-1]
    if query.is_cuda:
        share = kp.cdiv(keys * heads, DECODE_PROGRAMS)
        # where heads alone occupy the GPU, one part saves the kernel that adds parts up
        chunk = 1024 if heads >= DECODE_HEADS else max(64, min(1024, kp.cdiv(share, 64) * 64))
        block = 16
    else:
        chunk = max(256, kp.cdiv(kp.cdiv(keys * heads, kp.num_threads()), 64) * 64)
        block = 1 if rows == 1 else 4 if rows <= 4 else 8 if rows <= 8 else 16
        if rows > 4 and query.dtype == tl.bfloat16 and attn_mask is None:
            block = 16  # AMX multiplies as many rows at a time
    if batch_invariant:
        chunk = INVARIANT_CHUNK
    parts = kp.cdiv(keys, chunk)
    shared = parts if parts > 1 else 0
    partial = kp.empty((heads, shared, rows, value_dim), tl.float32, query.device)
    weights = kp.empty((heads, shared, rows, 2), tl.float32, query.device)
    mask_batches = batches if mask_strides[0] != 0 else 1
    mask_heads = group * key.shape[-3] if mask_strides[1] != 0 else 1
    mask_queries = queries if mask_strides[2] != 0 else 1
    given = mask_batches * mask_heads * mask_queries if attn_mask is not None else 0
    added = kp.empty((given, keys), tl.float32, query.device)
    if attn_mask is not None:
        decode_bias[(given,)](attn_mask, added, MaskStrides(*mask_strides), mask_heads, mask_queries, keys)
    bias = Bias(
        added,
        attn_mask is not None,
        mask_heads * mask_queries * keys if mask_batches > 1 else 0,
        mask_queries * keys if mask_heads > 1 else 0,
        keys if mask_queries > 1 else 0,
    )
    sizes = SharedSizes(key.shape[-3], group, queries, keys, query.shape[-1], value_dim)
    strides = PartStrides(strides_of(query), strides_of(key), strides_of(value), strides_of(out))
    head_dim = max(kp.next_power_of_2(max(query.shape[-1], value_dim)), 64)
    decode_part[(heads, parts)](
        query, key, value, partial, weights, out, bias, strides, sizes, scale, chunk, HEAD_DIM=head_dim, ROWS=block
    )
    if parts > 1:
        width = max(kp.next_power_of_2(value_dim), 64)
        decode_sum[(heads, rows)](partial, weights, out, strides_of(out), sizes, parts, HEAD_DIM=width)
