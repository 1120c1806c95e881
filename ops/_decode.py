"""Attention of a few queries to many keys: programs share the keys of a head, a second kernel adds up their parts.

The algorithm is Flash-Decoding (Dao, Haziza, Massa and Sizov, 2023). All queries that share a key head lie in one tile, so every key
and value is read once.
"""

import kernelpack as kp
import kernelpack.language as tl

from ._attend import attend, strides_of
from ._exponents import LOG2_E
from ._roles import begin_early

DECODE_PROGRAMS = 264
"""How many programs should share the keys: two for each multiprocessor of an H100, with at most 1024 keys for one."""

DECODE_HEADS = 128
"""From so many key heads on, of all batches, programs take 1024 keys: nearly one for each multiprocessor at least."""


DECODE_ROWS = (1, 4, 16)
"""For how many queries that share a key head there are kernels. GPUs have one, for 16: their products have as many rows at least."""


@kp.jit
def attend_few(
    acc, row_sum, row_max, q, key, value, offs_n, offs_d, stride_kn, stride_vn, start, stop, head_dim, value_dim, scale,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """As `attend`, for so few queries that transposing keys for a product would take longer than the products of their elements. There
    is one key at least. Returns maxima in units of log2(e)."""
    sign = tl.where(scale < 0.0, -1.0, tl.where(scale == 0.0, 0.0, 1.0))
    q = q.to(tl.float32) * sign  # the largest product is then the largest score
    unit = tl.where(tl.abs(scale) < 2.0**-126, 2.0**-126, tl.abs(scale)) * LOG2_E  # a scale of NaN stays one
    k_tile = key + offs_n[:, None] * stride_kn + offs_d[None, :]
    v_tile = value + offs_n[:, None] * stride_vn + offs_d[None, :]
    for n in range(start, stop, BLOCK_N):
        inside = n + offs_n < stop
        k_inside = inside[:, None] & (offs_d[None, :] < head_dim)
        k = tl.load(k_tile + n.to(tl.int64) * stride_kn, mask=k_inside, other=0.0).to(tl.float32)
        scores = tl.sum(q[:, None, :] * k[None, :, :], axis=2)
        scores = tl.where(inside[None, :], scores, -float("inf"))
        old_max, row_max = row_max, tl.maximum(row_max, tl.max(scores, axis=1))
        finite_max = tl.where(row_max == -float("inf"), 0.0, row_max)  # products of -inf alone: no weight, not NaN
        p = tl.exp2((scores - finite_max[:, None]) * unit)
        rescale = tl.exp2((old_max - finite_max) * unit)
        row_sum = row_sum * rescale + tl.sum(p, axis=1)
        v_inside = inside[:, None] & (offs_d[None, :] < value_dim)
        v = tl.load(v_tile + n.to(tl.int64) * stride_vn, mask=v_inside, other=0.0).to(tl.float32)
        acc = tl.dot(p, v, acc * rescale[:, None], input_precision="ieee")
    return acc, row_sum, row_max * unit


@kp.jit
def decode_part(
    query, key, value, partial, weights, out,
    stride_qb: tl.int64, stride_qh: tl.int64, stride_qm: tl.int64,
    stride_kb: tl.int64, stride_kh: tl.int64, stride_kn: tl.int64,
    stride_vb: tl.int64, stride_vh: tl.int64, stride_vn: tl.int64,
    stride_ob: tl.int64, stride_oh: tl.int64, stride_om: tl.int64,
    kv_heads, group, queries, keys, head_dim, value_dim, scale, chunk,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """`chunk` keys of one key head, a multiple of BLOCK_N, for all `group` * `queries` queries that share it, at most BLOCK_M.

    One part gives out, [batches, kv_heads * group, queries, value_dim]. Of several, partial [heads, parts, rows, value_dim] gets
    sums that are not yet divided, weights [heads, parts, rows, 2] the maximum of the scores in units of log2(e) and the sum of
    exponentials relative to it. SPLIT is that of mha_block.
    """
    begin_early()
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
    if BLOCK_M < 16:
        acc, row_sum, row_max = attend_few(
            acc, row_sum, row_max, q, key, value, offs_n, offs_d, stride_kn, stride_vn, first, stop, head_dim, value_dim, scale,
            BLOCK_N,
        )  # fmt: skip
    else:
        whole = first
        if SPLIT:
            whole += (stop - first) // BLOCK_N * BLOCK_N
            acc, row_sum, row_max = attend(
                acc, row_sum, row_max, q, key, value, None, rows, offs_n, offs_d, stride_kn, stride_vn, 0, 0,
                first, whole, queries, keys, head_dim, value_dim, scale, 0, False, False, BLOCK_N, False, True,
            )  # fmt: skip
        acc, row_sum, row_max = attend(
            acc, row_sum, row_max, q, key, value, None, rows, offs_n, offs_d, stride_kn, stride_vn, 0, 0,
            whole, stop, queries, keys, head_dim, value_dim, scale, 0, False, True, BLOCK_N, False, True,
        )  # fmt: skip
        row_max *= LOG2_E
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
    begin_early()
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
        grow = tl.exp2(tops - finite)
        shrink = tl.exp2(highest - finite)
        total = total * shrink + tl.sum(tile * grow[:, None], 0)
        weight = weight * shrink + tl.sum(sums * grow, 0)
        highest = above
    total = total / tl.where(weight == 0.0, 1.0, weight)
    out += head // kv_heads * stride_ob + (head % kv_heads * group + row // queries) * stride_oh + row % queries * stride_om
    tl.store(out + offs_d, total.to(out.dtype.element_ty), mask=offs_d < value_dim)


def decode_config(point):
    """Returns the config of decode_part or decode_sum. On GPUs 16-bit keys only."""
    cpu, size = point.target.backend == "cpu", point["HEAD_DIM"]
    if size == 32 or (not cpu and point["query"] == tl.float32):
        return None
    early = True if point.target.arch.startswith("sm_90") else None
    if point.kernel == "decode_sum":
        return kp.Config({"PARTS": 16}, num_warps=4, launch_pdl=early)
    if cpu:
        return kp.Config({"BLOCK_M": point["ROWS"], "BLOCK_N": 16 if point["ROWS"] < 16 else 64, "SPLIT": False})
    if point["ROWS"] < 16:
        return None
    blocks = {"BLOCK_M": 16, "BLOCK_N": 32 if size == 256 else 64, "SPLIT": True}
    return kp.Config(blocks, num_warps=4, num_stages=2, launch_pdl=early)


def decode(query, key, value, out, group, scale):
    """A host function's launches for few queries without a mask: `group` heads of them, at most DECODE_ROWS[-1] in all, share a key head."""
    heads = (query.shape[0] if query.dim() == 4 else 1) * key.shape[-3]
    queries, keys = query.shape[-2], key.shape[-2]
    rows, value_dim = group * queries, value.shape[-1]
    if query.is_cuda:
        share = kp.cdiv(keys * heads, DECODE_PROGRAMS)
        # where heads alone occupy the GPU, one part saves the kernel that adds parts up
        chunk = 1024 if heads >= DECODE_HEADS else max(64, min(1024, kp.cdiv(share, 64) * 64))
        block = 16
    else:
        chunk = max(256, kp.cdiv(kp.cdiv(keys * heads, kp.num_threads()), 64) * 64)
        block = 1 if rows == 1 else 4 if rows <= 4 else 16
    parts = kp.cdiv(keys, chunk)
    shared = parts if parts > 1 else 0
    partial = kp.empty((heads, shared, rows, value_dim), tl.float32, query.device)
    weights = kp.empty((heads, shared, rows, 2), tl.float32, query.device)
    decode_part[(heads, parts)](
        query, key, value, partial, weights, out,
        *strides_of(query),
        *strides_of(key),
        *strides_of(value),
        *strides_of(out),
        key.shape[-3], group, queries, keys, query.shape[-1], value_dim, scale, chunk,
        HEAD_DIM=max(kp.next_power_of_2(max(query.shape[-1], value_dim)), 64), ROWS=block,
    )  # fmt: skip
    if parts > 1:
        decode_sum[(heads, rows)](
            partial, weights, out, *strides_of(out),
            key.shape[-3], group, queries, parts, value_dim, HEAD_DIM=max(kp.next_power_of_2(value_dim), 64),
        )  # fmt: skip
