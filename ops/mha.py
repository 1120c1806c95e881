"""Multi-head attention: softmax(query key^T * scale + mask) value, in one pass over the keys.

The algorithm is FlashAttention-2 (Dao, 2023): each program owns BLOCK_M queries of one head and walks the keys in blocks,
rescaling what it has summed whenever a row's maximum grows (Milakov & Gimelshein, 2018). Scores never reach memory.
"""

import math
from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl

from ._attend import Form, MaskStrides, Sizes, Source, Strides, attend, mean_of, no_sums, strides_of
from ._decode import DECODE_ROWS, decode, decode_config
from ._mha_roles import mha_by_roles
from ._rows import check_contiguous

RANGES = {
    "dtypes": ("float32", "float16", "bfloat16"),
    "head_dim": (1, 256),
    "mask": (None, "bool", "query"),
    "ranks": (3, 4),
}


class AllStrides(NamedTuple):
    """The strides of all tensors."""

    query: Strides
    key: Strides
    value: Strides
    mask: MaskStrides
    out: Strides


@kp.jit
def mha_fwd(
    query, key, value, mask, out, strides, sizes, scale, diagonal,
    HEAD_DIM: tl.constexpr, TRIANGLE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr,
    BY_STRIDE: tl.constexpr, ANY_SCALE: tl.constexpr, COPIES: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """One block of queries of one head, or with COPIES every PROGRAMS-th of all. With TRIANGLE query i sees keys up to i + diagonal: 0 is
    causal (COPIES know no other), `keys` hides none. SPLIT: see mha_block."""
    form: tl.constexpr = Form(TRIANGLE, BLOCK_N, BY_STRIDE, ANY_SCALE)
    if COPIES:
        mha_by_roles(query, key, value, out, strides, sizes, scale, HEAD_DIM, TRIANGLE, BLOCK_N, COPIES)
    else:
        mha_block(query, key, value, mask, out, strides, sizes, scale, diagonal, HEAD_DIM, BLOCK_M, SPLIT, form)


@kp.jit
def mha_block(
    query, key, value, mask, out, strides, sizes, scale, diagonal,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, SPLIT: tl.constexpr, form,
):  # fmt: skip
    """One block of queries of one head. Without a mask `scale` is positive, unless ANY_SCALE. SPLIT walks the key blocks in which every
    key counts in a loop of their own, without masks (the CPU backend splits loops by itself)."""
    batch = (tl.program_id(1) // sizes.heads).to(tl.int64)
    head = (tl.program_id(1) % sizes.heads).to(tl.int64)
    keys = sizes.keys
    first = tl.program_id(0) * BLOCK_M
    rows = first + tl.arange(0, BLOCK_M)
    numbers = tl.arange(0, form.BLOCK_N)
    columns = tl.arange(0, HEAD_DIM)
    query += batch * strides.query.batch + head * strides.query.head
    key += batch * strides.key.batch + head // sizes.group * strides.key.head
    value += batch * strides.value.batch + head // sizes.group * strides.value.head
    out += batch * strides.out.batch + head * strides.out.head
    if mask is not None:
        mask += batch * strides.mask.batch + head * strides.mask.head
    source = Source(numbers, key, value, mask, strides.key.row, strides.value.row, strides.mask.row, strides.mask.column)
    in_query = (rows[:, None] < sizes.queries) & (columns[None, :] < sizes.head_dim)
    q = tl.load(query + rows[:, None] * strides.query.row + columns[None, :], mask=in_query, other=0.0)
    sums = no_sums(BLOCK_M, HEAD_DIM)
    stop = tl.minimum(keys - diagonal, first + BLOCK_M) + diagonal if form.TRIANGLE else keys
    whole = 0
    if SPLIT:
        seen = tl.minimum(keys - diagonal, first + 1) + diagonal if form.TRIANGLE else keys
        whole = seen // form.BLOCK_N * form.BLOCK_N
        sums = attend(sums, q, source, rows, 0, whole, sizes, scale, diagonal, False, form)
    sums = attend(sums, q, source, rows, whole, stop, sizes, scale, diagonal, True, form)
    result = mean_of(sums)
    in_out = (rows[:, None] < sizes.queries) & (columns[None, :] < sizes.value_dim)
    tl.store(out + rows[:, None] * strides.out.row + columns[None, :], result.to(out.dtype.element_ty), mask=in_out)


ONE_BLOCK = {"COPIES": 0, "PROGRAMS": 0}
"""Constexprs of kernels whose programs attend to one block of queries each."""


def triangle(point, shared):
    """Returns a kernel's TRIANGLE. Where full calls may share it with causal ones, no kernel is built for them."""
    return point["CAUSAL"] or (shared and point["attn_mask"] is None)


def cpu_config(point):
    if point.kernel != "mha_fwd":
        return decode_config(point)
    if point["SHORT"]:
        rows, columns = 16, 16
    else:
        rows, columns = 64 if point["CAUSAL"] else 128, 64
    blocks = {**ONE_BLOCK, "BLOCK_M": rows, "BLOCK_N": columns, "SPLIT": False, "BY_STRIDE": True, "ANY_SCALE": point["SHORT"]}
    return kp.Config({**blocks, "TRIANGLE": triangle(point, shared=point["SHORT"])})


def amx_config(point):
    """Tiles want columns enough: a block of sums is read and written for each block of keys."""
    plain = cpu_config(point)
    if point.kernel != "mha_fwd" or point["query"] != tl.bfloat16 or point["SHORT"]:
        return plain
    return kp.Config({**plain.kwargs, "BLOCK_N": 128})


CUDA_BLOCKS = {32: (64, 64, 4, 3), 64: (128, 64, 4, 3), 128: (64, 64, 4, 2), 256: (128, 32, 8, 2)}
"""By head size: BLOCK_M, BLOCK_N, warps and stages for 16-bit inputs without a mask, the fastest measured on an H100."""


def cuda_config(point):
    if point.kernel != "mha_fwd":
        return decode_config(point)
    if point["query"] == tl.float32:
        return float32_config(point)
    size, masked = point["HEAD_DIM"], point["attn_mask"] is not None
    wide = size == 256
    if point["SHORT"]:
        # two warps hold few queries of small heads; more than that takes more registers than they have
        rows, columns, warps, stages = 32, 32 if wide else 64, 4 if masked or size > 64 else 2, 2
    elif masked:  # the mask's tile takes registers too
        rows, columns, warps, stages = 64 if wide else 128, 32 if wide else 64, 8, 2
    else:
        rows, columns, warps, stages = CUDA_BLOCKS[size]
    specialize = not point["SHORT"]  # where wider loads are possible, few queries take the kernels for many
    fast = specialize and point.specialized
    blocks = {**ONE_BLOCK, "BLOCK_M": rows, "BLOCK_N": columns, "SPLIT": fast and not masked, "BY_STRIDE": False}
    blocks["ANY_SCALE"] = point["SHORT"]
    blocks["TRIANGLE"] = triangle(point, shared=not fast)
    return kp.Config(blocks, num_warps=warps, num_stages=stages, specialize=specialize)


FLOAT32_BLOCKS = {32: (64, 32, 4, 2), 64: (128, 32, 4, 2), 128: (64, 16, 4, 2), 256: (64, 16, 8, 2)}
"""The same for float32: tensor cores multiply it in three steps, for which few rows have registers."""


def float32_config(point):
    size, masked = point["HEAD_DIM"], point["attn_mask"] is not None
    # small heads are bound by arithmetic and do not gain from wider loads
    specialize = size >= 128 and not masked and not point["SHORT"]
    fast = specialize and point.specialized
    if point["SHORT"]:
        if masked:  # the kernels for more queries serve these, too
            return None
        rows, columns, warps, stages = (32, 32, 8, 1) if size == 256 else (32, 32, 4, 2)
    elif size == 64 and masked:
        rows, columns, warps, stages = 64, 16, 4, 2
    elif size == 128 and fast:
        rows, columns, warps, stages = 64, 32, 4, 2
    elif size == 256 and fast and point.target.arch == "sm_90a":  # sm_80 has 163 KB of shared memory
        rows, columns, warps, stages = 128, 16, 8, 2
    else:
        rows, columns, warps, stages = FLOAT32_BLOCKS[size]
    blocks = {**ONE_BLOCK, "BLOCK_M": rows, "BLOCK_N": columns, "SPLIT": False, "BY_STRIDE": False}
    # scores of head size 128 are scaled one by one: one multiplication more, and the loop is 2% faster on an H100
    blocks["ANY_SCALE"] = point["SHORT"] or size == 128
    blocks["TRIANGLE"] = triangle(point, shared=True)
    return kp.Config(blocks, num_warps=warps, num_stages=stages, specialize=specialize)


def hopper_config(point):
    """Roles need 16-bit inputs that TMA can address; they know no masks but the causal one."""
    roles = point.kernel == "mha_fwd" and point.specialized and point["query"] != tl.float32 and point["attn_mask"] is None
    if not roles or point["SHORT"] or point["HEAD_DIM"] == 32:
        return cuda_config(point)
    # head size 64 is bound by exponentials, which three roles overlap better; causal, they wait for each other at the diagonal
    copies = 3 if point["HEAD_DIM"] == 64 and (point["LONG"] or not point["CAUSAL"]) else 2
    blocks = {"BLOCK_M": 64 * copies, "BLOCK_N": 64 if point["HEAD_DIM"] == 256 else 128, "SPLIT": False, "BY_STRIDE": False}
    blocks |= {"TRIANGLE": triangle(point, shared=False), "ANY_SCALE": False}
    # H100 (SXM) and H200 have 132 multiprocessors; elsewhere some programs wait for others
    return kp.Config({**blocks, "COPIES": copies, "PROGRAMS": 132})


LONG_QUERIES = 3072
"""From so many queries on, causal calls with head size 64 in 16 bits have kernels of their own on GPUs."""


def built(config):
    """A causal call has no other mask, so its variants with one are not built; of LONG ones only those that calls choose."""

    def chosen(point):
        if point.kernel != "mha_fwd":
            return config(point)
        causal, unmasked = point["CAUSAL"], point["attn_mask"] is None
        if point["LONG"]:
            narrow = point["HEAD_DIM"] == 64 and point["query"] != tl.float32 and point.target.backend != "cpu"
            return config(point) if causal and unmasked and narrow and not point["SHORT"] else None
        return None if causal and not unmasked else config(point)

    return chosen


def check_shapes(query, key, value):
    """A host function's checks that query, key and value fit together and can be read without strides along the head size."""
    kp.check(
        query.dim() == 3 or query.dim() == 4,
        f"query must have 3 or 4 dimensions ([batch,] heads, length, head size), its shape is {query.shape}",
    )
    kp.check(key.dim() == query.dim(), f"key has {key.dim()} dimensions, query has {query.dim()}")
    kp.check(value.dim() == query.dim(), f"value has {value.dim()} dimensions, query has {query.dim()}")
    if query.dim() == 4:
        kp.check(key.shape[0] == query.shape[0], f"key has batch size {key.shape[0]}, query has {query.shape[0]}")
        kp.check(value.shape[0] == query.shape[0], f"value has batch size {value.shape[0]}, query has {query.shape[0]}")
    kp.check(key.shape[-1] == query.shape[-1], f"key has head size {key.shape[-1]}, query has {query.shape[-1]}")
    kp.check(value.shape[-3] == key.shape[-3], f"value has {value.shape[-3]} heads, key has {key.shape[-3]}")
    kp.check(value.shape[-2] == key.shape[-2], f"value has length {value.shape[-2]}, key has {key.shape[-2]}")
    kp.check(query.shape[-1] <= 256, f"query has head size {query.shape[-1]}, at most 256 is supported")
    kp.check(value.shape[-1] <= 256, f"value has head size {value.shape[-1]}, at most 256 is supported")
    check_contiguous(query, "query")
    check_contiguous(key, "key")
    check_contiguous(value, "value")


def check_heads(heads, kv_heads, enable_gqa):
    """A host function's check of the number of heads: as many of query as of key, or with enable_gqa a multiple."""
    if enable_gqa:
        kp.check(
            heads == 0 or (kv_heads > 0 and heads % kv_heads == 0),
            f"query has {heads} heads, which is no multiple of key's {kv_heads}",
        )
    else:
        kp.check(
            kv_heads == heads,
            f"key has {kv_heads} heads, query has {heads}\n  to fix: pass enable_gqa=True if query heads share key heads",
        )


@kp.op(
    "mha(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, *, bool is_causal=False, float? scale=None, "
    "bool enable_gqa=False, bool batch_invariant=False) -> Tensor",
    variants={
        "query": [tl.float32, tl.float16, tl.bfloat16],
        "attn_mask": [None, tl.int1, kp.same_as("query")],
        "HEAD_DIM": [32, 64, 128, 256],
        "CAUSAL": [False, True],
        "SHORT": [False, True],  # few queries, and what is rare: no keys, scales that are not positive
        "LONG": [False, True],  # many queries, of those calls for which that makes a difference
        "ROWS": DECODE_ROWS,  # of few queries to shared keys
    },
    configs={
        "cpu": built(cpu_config),
        "cpu:x86-64-v4+amx": built(amx_config),
        "cuda": built(cuda_config),
        "cuda:sm_90a": built(hopper_config),
    },
    specialize=[kp.aligned(inner=8)],
)
def mha(query, key, value, attn_mask, is_causal, scale, enable_gqa, batch_invariant):
    """Scaled dot-product attention with the meaning of torch.nn.functional.scaled_dot_product_attention.

    query [B, H, M, D], key [B, H_kv, N, D], value [B, H_kv, N, D_v], all of one dtype; or without B. attn_mask broadcasts to
    [B, H, M, N]: bool (True counts) or the query's dtype (added). is_causal: query i sees keys up to i. With enable_gqa, H is a
    multiple of H_kv; otherwise both are equal. A query that no key counts for gives 0. batch_invariant: the result of one of the B has
    the same bits whatever the others are, and however many. Returns [B, H, M, D_v], whose dimensions lie in memory in the order of
    query's.
    """
    check_shapes(query, key, value)
    batches = query.shape[0] if query.dim() == 4 else 1
    heads, queries, head_dim = query.shape[-3], query.shape[-2], query.shape[-1]
    kv_heads, keys, value_dim = key.shape[-3], key.shape[-2], value.shape[-1]
    check_heads(heads, kv_heads, enable_gqa)
    kp.check(
        attn_mask is None or not is_causal,
        "attn_mask and is_causal=True exclude each other\n  to fix: put the causal part into attn_mask",
    )
    shape = (*query.shape[:-1], value_dim)
    out = kp.empty_strided(shape, kp.strides_like(query, shape), query.dtype, query.device)
    mask_strides = kp.broadcast_strides(attn_mask, (batches, heads, queries, keys))
    if scale is None:
        scale = 1.0 / math.sqrt(max(head_dim, 1))
    group = heads // max(kv_heads, 1)
    # few queries leave most of a GPU idle, unless programs share the keys of a head; float32 products are bound by arithmetic there
    shares = (attn_mask is None and query.element_size() == 2 and keys >= 256) if query.is_cuda else keys > 0
    most = DECODE_ROWS[-1] if attn_mask is None else DECODE_ROWS[-2]
    if shares and not is_causal and group * queries <= most:
        decode(query, key, value, attn_mask, mask_strides, out, group, scale, batch_invariant)
    else:
        total = batches * heads
        size = max(kp.next_power_of_2(max(head_dim, value_dim)), 32)
        # blocks of 64 queries would waste more than a quarter of their work
        short = kp.cdiv(queries, 64) * 256 > queries * 5
        if query.is_cuda and query.element_size() == 2 and head_dim % 8 == 0 and value_dim % 8 == 0:
            # kernels for few queries load two bytes at a time: they are sooner done where that is little
            short = queries <= 32 and (is_causal or (attn_mask is not None and size <= 64 and keys <= 512))
        short = short or keys == 0 or scale <= 0.0
        short = short and (attn_mask is None or query.element_size() == 2 or not query.is_cuda)
        wide = not query.is_cuda or query.element_size() != 2 or size != 64
        mha_fwd[
            lambda meta: (
                min(kp.cdiv(queries, meta["BLOCK_M"]) * total, meta["PROGRAMS"])
                if meta["PROGRAMS"] > 0
                else kp.cdiv(queries, meta["BLOCK_M"]),
                1 if meta["PROGRAMS"] > 0 else total,
            )
        ](
            query, key, value, attn_mask, out,
            AllStrides(strides_of(query), strides_of(key), strides_of(value), MaskStrides(*mask_strides), strides_of(out)),
            Sizes(batches, heads, group, queries, keys, head_dim, value_dim), scale, 0 if is_causal else keys,
            HEAD_DIM=size, CAUSAL=is_causal, SHORT=short, LONG=is_causal and not short and not wide and queries >= LONG_QUERIES,
        )  # fmt: skip
    return out


def reference(query, key, value, attn_mask=None, is_causal=False, scale=None, enable_gqa=False, batch_invariant=False):
    """The same in plain torch, in the dtype of its arguments."""
    import torch  # builds do without it

    if (
        attn_mask is not None
    ):  # torch refuses masks of less than two dimensions, its kernels for GPUs those that broadcast along keys
        attn_mask = attn_mask.expand(*(attn_mask.shape[:-1] or (1,)), key.shape[-2]).contiguous()
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )
