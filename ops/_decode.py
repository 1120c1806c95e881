"""Attention of a few queries to many keys: programs share the keys of a head, a second kernel adds up their parts.

The algorithm is Flash-Decoding (Dao, Haziza, Massa and Sizov, 2023). All queries that share a key head lie in one tile, so every key
and value is read once.
"""

import kernelpack as kp
import kernelpack.language as tl

from ._attend import attend

DECODE_PROGRAMS = 264
"""How many programs should share the keys: two for each multiprocessor of an H100, with at most 1024 keys for one."""

DECODE_HEADS = 128
"""From so many key heads on, of all batches, programs take 1024 keys: nearly one for each multiprocessor at least."""


@kp.jit
def decode_part(
    query, key, value, partial, weights, out,
    stride_qb: tl.int64, stride_qh: tl.int64, stride_qm: tl.int64,
    stride_kb: tl.int64, stride_kh: tl.int64, stride_kn: tl.int64,
    stride_vb: tl.int64, stride_vh: tl.int64, stride_vn: tl.int64,
    stride_ob: tl.int64, stride_oh: tl.int64, stride_om: tl.int64,
    kv_heads, group, queries, keys, head_dim, value_dim, scale, chunk,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """`chunk` keys of one key head, a multiple of BLOCK_N, for all `group` * `queries` queries that share it, at most BLOCK_M.

    One part gives out, [batches, kv_heads * group, queries, value_dim]. Of several, partial [heads, parts, rows, value_dim] gets
    sums that are not yet divided, weights [heads, parts, rows, 2] the maximum of the scores in units of log2(e) and the sum of
    exponentials relative to it.
    """
    batch = (tl.program_id(0) // kv_heads).to(tl.int64)
    head = (tl.program_id(0) % kv_heads).to(tl.int64)
    rows = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, HEAD_DIM)
    inside = rows < group * queries
    query += batch * stride_qb + head * group * stride_qh
    key += batch * stride_kb + head * stride_kh
    value += batch * stride_vb + head * stride_vh
    q_rows = query + rows // queries * stride_qh + rows % queries * stride_qm
    q = tl.load(q_rows[:, None] + offs_d[None, :], mask=inside[:, None] & (offs_d[None, :] < head_dim), other=0.0)
    acc = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    row_max = tl.full([BLOCK_M], -float("inf"), tl.float32)
    first = tl.program_id(1) * chunk
    stop = tl.minimum(keys, first + chunk)
    whole = first + (stop - first) // BLOCK_N * BLOCK_N
    acc, row_sum, row_max = attend(
        acc, row_sum, row_max, q, key, value, None, rows, offs_n, offs_d, stride_kn, stride_vn, 0, 0,
        first, whole, queries, keys, head_dim, value_dim, scale, 0, False, False, BLOCK_N, False,
    )  # fmt: skip
    acc, row_sum, row_max = attend(
        acc, row_sum, row_max, q, key, value, None, rows, offs_n, offs_d, stride_kn, stride_vn, 0, 0,
        whole, stop, queries, keys, head_dim, value_dim, scale, 0, False, True, BLOCK_N, False,
    )  # fmt: skip
    in_tile = inside[:, None] & (offs_d[None, :] < value_dim)
    if tl.num_programs(1) == 1:
        acc = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
        out_rows = out + batch * stride_ob + (head * group + rows // queries) * stride_oh + rows % queries * stride_om
        tl.store(out_rows[:, None] + offs_d[None, :], acc.to(out.dtype.element_ty), mask=in_tile)
    else:
        part = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
        at = part * (group * queries) + rows
        tl.store(partial + at[:, None] * value_dim + offs_d[None, :], acc, mask=in_tile)
        tl.store(weights + at * 2, row_max, mask=inside)
        tl.store(weights + at * 2 + 1, row_sum, mask=inside)


@kp.jit
def decode_sum(
    partial, weights, out, stride_ob: tl.int64, stride_oh: tl.int64, stride_om: tl.int64,
    kv_heads, group, queries, parts, value_dim, HEAD_DIM: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """One row of one head: the parts, each weighed by what its maximum is below the highest. Layouts are those of decode_part."""
    head, row = tl.program_id(0).to(tl.int64), tl.program_id(1)
    rows = group * queries
    offs_p = tl.arange(0, PARTS)
    offs_d = tl.arange(0, HEAD_DIM)
    total = tl.zeros([HEAD_DIM], tl.float32)
    highest = -float("inf")
    weight = 0.0
    for first in range(0, parts, PARTS):
        inside = first + offs_p < parts
        at = (head * parts + first + offs_p) * rows + row
        tops = tl.load(weights + at * 2, mask=inside, other=-float("inf"))
        sums = tl.load(weights + at * 2 + 1, mask=inside, other=0.0)
        in_tile = inside[:, None] & (offs_d[None, :] < value_dim)
        tile = tl.load(partial + at[:, None] * value_dim + offs_d[None, :], mask=in_tile, other=0.0)
        above = tl.maximum(highest, tl.max(tops, 0))
        finite = tl.where(above == -float("inf"), 0.0, above)  # scores of -inf alone: no weight, not NaN
        scale = tl.exp2(tops - finite)
        shrink = tl.exp2(highest - finite)
        total = total * shrink + tl.sum(tile * scale[:, None], 0)
        weight = weight * shrink + tl.sum(sums * scale, 0)
        highest = above
    total = total / tl.where(weight == 0.0, 1.0, weight)
    out += head // kv_heads * stride_ob + (head % kv_heads * group + row // queries) * stride_oh + row % queries * stride_om
    tl.store(out + offs_d, total.to(out.dtype.element_ty), mask=offs_d < value_dim)


def decode_config(point):
    """Returns a GPU's config: 16-bit keys only, float32 products are bound by arithmetic."""
    if point["query"] == tl.float32:
        return None
    if point.kernel == "decode_sum":
        return kp.Config({"PARTS": 16}, num_warps=4) if point["HEAD_DIM"] > 32 else None
    if point["HEAD_DIM"] == 32:
        return None
    return kp.Config({"BLOCK_M": 16, "BLOCK_N": 32 if point["HEAD_DIM"] == 256 else 64}, num_warps=4, num_stages=2)
