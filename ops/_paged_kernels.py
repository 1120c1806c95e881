"""The kernels of attention to keys in pages, and how they are launched: paged_attention's and packed_attention's."""

import kernelpack as kp
import kernelpack.language as tl

from ._attend import no_sums
from ._decode import DECODE_HEADS, DECODE_PROGRAMS
from ._paged import (
    Limits,
    Optional,
    PagedForm,
    PagedSizes,
    PagedStrides,
    Parts,
    RowStrides,
    check_packed,
    end_of,
    finished,
    load_query,
    pages_of,
    rows_of,
    sequence_of,
    store_part,
    store_result,
    unit_of,
    values_at,
    walk_all,
    with_parts,
)
from ._paged_arguments import MAX_HEAD_DIM
from ._paged_roles import paged_by_roles
from ._roles import begin_early, early

CHUNK = 512
"""How many keys a program takes where few rows share them: on CPUs, and where results must not depend on what else is in a batch."""


BLOCK_PROGRAMS = 132
"""How many programs take blocks of rows, and share the keys of few: one for each multiprocessor of an H100 (SXM) or H200, with at least 128
keys for one. Elsewhere some wait for others."""

SAVED_KEYS = 384
"""Programs share the keys of blocks of rows where each then has so many less: adding up the parts takes as long."""


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
    query, key_cache, value_cache, block_table, query_starts, key_lengths, options, counter, parts, out, lse, strides, sizes, limits, rules,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PIECE: tl.constexpr, SPLIT: tl.constexpr,
    CHECKED: tl.constexpr, GROUPED: tl.constexpr, COPIES: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """A part of the keys for one block of rows of one sequence and key head, or with COPIES all that no other of PROGRAMS programs takes."""
    begin_early()
    if COPIES:
        paged_by_roles(
            query, key_cache, value_cache, block_table, query_starts, key_lengths, options, counter, parts, out, lse, strides, sizes,
            limits, rules, HEAD_DIM, BLOCK_N, COPIES,
        )  # fmt: skip
    else:
        form: tl.constexpr = PagedForm(BLOCK_N, PIECE, SPLIT, CHECKED)
        one_block(
            query, key_cache, value_cache, block_table, query_starts, key_lengths, options, parts, out, lse, strides, sizes, limits, rules,
            HEAD_DIM, BLOCK_M, GROUPED, form,
        )  # fmt: skip


@kp.jit
def attend_part(
    query, key_cache, value_cache, block_table, options, parts, out, lse, strides, sizes, rules, sequence, number, head, share, part, first_row,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, GROUPED: tl.constexpr, form,
):  # fmt: skip
    """A part of the keys for the rows from `first_row` on of the sequence of that number and a key head; `share` is the number of both."""
    numbers = first_row + tl.arange(0, BLOCK_M)
    rows = rows_of(sequence, numbers, sizes.group, rules)
    q = load_query(query, sequence, rows, head, strides, sizes, HEAD_DIM)
    if BLOCK_M < 16:
        q = q.to(tl.float32)
    pages = pages_of(number, head, key_cache, value_cache, block_table, strides, sizes)
    if form.CHECKED:
        check_packed(pages, sequence)
    unit = unit_of(rules, options, head, strides.key_scale)
    first, stop = part * parts.chunk, end_of(part, parts, sequence.keys)
    sums = walk_all(no_sums(BLOCK_M, HEAD_DIM), q, pages, rows, first, stop, unit, rules, sizes, form)
    if parts.count == 1:
        means, logs = finished(sums, rows, head, options, sizes, strides.value_scale)
        store_result(out, lse, means, logs, sequence, rows, head, strides, sizes)
    else:
        store_part(parts, sums, share, part, numbers, rows.inside, sizes, GROUPED)


@kp.jit
def one_block(
    query, key_cache, value_cache, block_table, query_starts, key_lengths, options, parts, out, lse, strides, sizes, limits, rules,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, GROUPED: tl.constexpr, form,
):  # fmt: skip
    """A part of the keys for one block of rows of one sequence and key head."""
    number, block = sequence_number(tl.program_id(0), query_starts, sizes, BLOCK_M)
    head, part = tl.program_id(1).to(tl.int64), tl.program_id(2)
    sequence = sequence_of(number, query_starts, key_lengths, limits, form.CHECKED)
    count = sequence.queries * sizes.group
    if (count > sizes.few) & (block * BLOCK_M < count) & ((part * parts.chunk < sequence.keys) | (parts.count == 1)):
        share = number * sizes.kv_heads + head
        attend_part(
            query, key_cache, value_cache, block_table, options, parts, out, lse, strides, sizes, rules, sequence, number, head, share, part,
            block * BLOCK_M, HEAD_DIM, BLOCK_M, GROUPED, form,
        )  # fmt: skip


@kp.jit
def paged_part(
    query, key_cache, value_cache, block_table, query_starts, key_lengths, options, counter, parts, out, lse, strides, sizes, limits, rules,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PIECE: tl.constexpr, SPLIT: tl.constexpr,
    CHECKED: tl.constexpr, GROUPED: tl.constexpr,
):  # fmt: skip
    """A part of the keys of one key head for all rows of a sequence of at most `few` rows. counter becomes 0, for paged_block."""
    begin_early()
    if (tl.program_id(0) == 0) & (tl.program_id(1) == 0):
        tl.store(counter, 0)
    form: tl.constexpr = PagedForm(BLOCK_N, PIECE, SPLIT, CHECKED)
    number, part = tl.program_id(0) // sizes.kv_heads, tl.program_id(1)
    head = (tl.program_id(0) % sizes.kv_heads).to(tl.int64)
    sequence = sequence_of(number, query_starts, key_lengths, limits, CHECKED)
    count = sequence.queries * sizes.group
    if (count > 0) & (count <= sizes.few) & ((part * parts.chunk < sequence.keys) | (parts.count == 1)):
        share = tl.program_id(0).to(tl.int64)
        attend_part(
            query, key_cache, value_cache, block_table, options, parts, out, lse, strides, sizes, rules, sequence, number, head, share, part,
            0, HEAD_DIM, BLOCK_M, GROUPED, form,
        )  # fmt: skip


@kp.jit
def paged_sum(
    query_starts, key_lengths, options, parts, out, lse, strides, sizes, limits, rules,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, PARTS: tl.constexpr, COLUMNS: tl.constexpr, CHECKED: tl.constexpr,
    GROUPED: tl.constexpr,
):  # fmt: skip
    """Some columns of BLOCK_M rows of one sequence and key head that have several parts, each weighed by what its maximum is below the highest."""
    begin_early()
    number, first_row, first_column = tl.program_id(0) // sizes.kv_heads, tl.program_id(1) * BLOCK_M, tl.program_id(2) * COLUMNS
    head = (tl.program_id(0) % sizes.kv_heads).to(tl.int64)
    sequence = sequence_of(number, query_starts, key_lengths, limits, CHECKED)
    count = sequence.queries * sizes.group
    if (first_row < count) & (count <= parts.rows):
        numbers = first_row + tl.arange(0, BLOCK_M)
        rows = rows_of(sequence, numbers, sizes.group, rules)
        columns, share = first_column + tl.arange(0, COLUMNS), tl.program_id(0).to(tl.int64)
        own = tl.minimum(parts.count, tl.cdiv(sequence.keys, parts.chunk))
        sums = no_sums(BLOCK_M, COLUMNS)
        for first in range(0, own, PARTS):
            part = first + tl.arange(0, PARTS)
            inside = rows.inside[:, None] & (part[None, :] < own)
            if GROUPED:
                at = parts.weights + share * parts.count * parts.rows * 2 + (part[None, :] * parts.rows + numbers[:, None]) * 2
                groups = part[:, None] * parts.groups + columns[None, :] // 8
                places = values_at(parts, share, 0, numbers[:, None, None], groups[None], columns % 8, 8)
            else:
                at = parts.weights + ((share * parts.count + part[None, :]) * parts.rows + numbers[:, None]) * 2
                places = values_at(parts, share, part[:, None], numbers[:, None, None], 0, columns, sizes.value_dim)
            tops = tl.load(at, mask=inside, other=-float("inf"))
            sizes_of = tl.load(at + 1, mask=inside, other=0.0)
            tile = tl.load(places, mask=inside[:, :, None] & (columns < sizes.value_dim), other=0.0)
            sums = with_parts(sums, tops, sizes_of, tile)
        means, logs = finished(sums, rows, head, options, sizes, strides.value_scale)
        store_result(out, lse, means, logs, sequence, rows, head, strides, sizes, first_column)


def is_built(point, narrow):
    """Whether a variant is built. Caches in 8 bits serve queries in bfloat16 of head sizes up to 128. One paged_sum serves all head sizes, in
    blocks for few rows or for many."""
    if narrow and point["query"] != tl.bfloat16:
        return False
    if point["ROWS"] == 8 and point["query"] == tl.bfloat16:
        return False  # AMX multiplies 16 rows at a time
    if point.kernel == "paged_sum":
        return point["HEAD_DIM"] == MAX_HEAD_DIM and point["ROWS"] != 8
    return not narrow or point["HEAD_DIM"] <= 128


def cpu_blocks(point, narrow=False):
    """On CPUs, 16 keys are always of one block of the cache, and a program that finds an error ends its launch: nobody waits for that."""
    if not is_built(point, narrow):
        return None
    if point.kernel == "paged_sum":
        blocks = {"BLOCK_M": 1, "PARTS": 16, "COLUMNS": MAX_HEAD_DIM, "CHECKED": True, "GROUPED": False}
        return kp.Config(blocks) if point["ROWS"] == 4 else None  # programs do not share the keys of many rows
    blocks = {"BLOCK_M": point["ROWS"] if point.kernel == "paged_part" else 64, "BLOCK_N": 16, "PIECE": 16, "SPLIT": False}
    return kp.Config(with_copies(point, {**blocks, "CHECKED": True, "GROUPED": False}))


def with_copies(point, blocks, copies=0):
    """Returns a kernel's constexprs with COPIES and PROGRAMS, which only paged_block has."""
    return (
        {**blocks, "COPIES": copies, "PROGRAMS": BLOCK_PROGRAMS if copies else 0} if point.kernel == "paged_block" else blocks
    )


CUDA_BLOCKS = {64: (128, 64, 4, 3), 128: (64, 64, 4, 2), 256: (128, 32, 8, 2)}
"""By head size: BLOCK_M, BLOCK_N, warps and stages for queries in 16 bits, those of mha."""


def cuda_blocks(point, narrow=False):
    """Products on GPUs have 16 rows at least."""
    if not is_built(point, narrow):
        return None
    checked = kp.knobs.runtime.debug
    if point.kernel == "paged_sum":
        rows, parts = (4, 16) if point["ROWS"] == 4 else (8, 4)  # many rows have few parts
        blocks = {"BLOCK_M": rows, "PARTS": parts, "COLUMNS": 64, "CHECKED": checked, "GROUPED": True}
        return kp.Config(blocks, num_warps=4, specialize=False, launch_pdl=early(point))
    if point["ROWS"] != 16:
        return None
    size, wide = point["HEAD_DIM"], point["query"] == tl.float32
    if point.kernel == "paged_part":
        rows, columns, warps, stages = 16, 32 if wide or size == 256 else 64, 4, 2
    elif wide:
        rows, columns, warps, stages = 64, 32 if size == 64 else 16, 8 if size == 256 else 4, 2
    else:
        rows, columns, warps, stages = CUDA_BLOCKS[size]
    split = point.specialized and not wide
    blocks = {"BLOCK_M": rows, "BLOCK_N": columns, "PIECE": 16, "SPLIT": split, "CHECKED": checked, "GROUPED": True}
    blocks = with_copies(point, blocks)
    return kp.Config(blocks, num_warps=warps, num_stages=stages, specialize=not wide, launch_pdl=early(point))


def hopper_blocks(point, narrow=False):
    """Roles need queries and caches of one type in 16 bits, which TMA can address. They check nothing."""
    roles = point.kernel == "paged_block" and point.specialized and point["query"] != tl.float32 and not narrow
    if not roles or point["ROWS"] != 16 or kp.knobs.runtime.debug:
        return cuda_blocks(point, narrow)
    copies = 3 if point["HEAD_DIM"] == 64 else 2
    columns = 64 if point["HEAD_DIM"] == 256 else 128
    blocks = {"BLOCK_M": 64 * copies, "BLOCK_N": columns, "PIECE": 16, "SPLIT": False, "CHECKED": False, "GROUPED": True}
    return kp.Config(with_copies(point, blocks, copies), launch_pdl=True)


def scale_step(scale):
    """A host function's stride of the scales of a cache: 0 where all key heads share one."""
    return 0 if scale is None else scale.stride(0) if scale.shape[0] > 1 else 0


def attend_pages(query, key, value, table, query_starts, key_lengths, sinks, key_scale, value_scale, keys, bounds, rules):
    """The body of a host function, when its arguments were checked: allocates the results and launches."""
    tokens, heads, head_dim = query.shape[0], query.shape[1], query.shape[2]
    sequences, kv_heads, value_dim = key_lengths.shape[0], keys.kv_heads, keys.value_dim
    kp.check(bounds.queries >= 0, f"max_query_length is {bounds.queries}, expected 0 or more")
    kp.check(bounds.keys >= 0 and bounds.keys < 2**30, f"max_key_length is {bounds.keys}, expected 0 ... 2**30 - 1")
    kp.check(tokens * heads < 2**30, f"query has {tokens} tokens of {heads} heads, more than 2**30 rows")
    out = kp.empty((tokens, heads, value_dim), query.dtype, query.device)
    lse = kp.empty((heads, tokens), tl.float32, query.device)
    group = heads // max(kv_heads, 1)
    size = max(kp.next_power_of_2(max(head_dim, value_dim)), 64)
    kp.check(
        key.element_size() == query.element_size() or (query.dtype == tl.bfloat16 and size <= 128),
        "key_cache has 8 bits, which are built for queries in bfloat16 and head sizes up to 128",
    )
    reach = bounds.queries * group
    few, chunk = 16, CHUNK
    if query.is_cuda:
        if not bounds.batch_invariant:
            share = kp.cdiv(bounds.keys * sequences * kv_heads, DECODE_PROGRAMS)
            chunk = 1024 if sequences * kv_heads >= DECODE_HEADS else max(64, min(1024, kp.cdiv(share, 64) * 64))
    elif group <= 4 and (reach <= 4 or reach > 16 or bounds.batch_invariant):
        few = 4
    elif group <= 8 and query.dtype != tl.bfloat16 and (reach <= 8 or reach > 16 or bounds.batch_invariant):
        few = 8
    rows = min(few, reach)
    if query.is_cuda and reach > few and not bounds.batch_invariant:
        blocks = kp.cdiv(reach, 192 if size == 64 else 128) * sequences * kv_heads
        share = kp.cdiv(kp.cdiv(bounds.keys, max(BLOCK_PROGRAMS // max(blocks, 1), 1)), 128) * 128
        if bounds.keys - share >= SAVED_KEYS:
            rows, chunk = reach, share
    count = max(kp.cdiv(bounds.keys, chunk), 1)
    block_count = count if rows > few else 1
    shared = count if count > 1 else 0
    width = 8 if query.is_cuda else value_dim
    groups = kp.cdiv(value_dim, max(width, 1))
    values = kp.empty((sequences * kv_heads, shared, groups, rows, width), tl.float32, query.device)
    weights = kp.empty((sequences * kv_heads, shared, rows, 2), tl.float32, query.device)
    parts = Parts(values, weights, count, chunk, groups, rows)
    counter = kp.empty((1,), tl.int32, query.device)
    strides = PagedStrides(
        RowStrides(query.stride(0), query.stride(1)),
        keys.key, keys.value,
        RowStrides(out.stride(0), out.stride(1)),
        keys.table, scale_step(key_scale), scale_step(value_scale),
    )  # fmt: skip
    sizes = PagedSizes(
        sequences, kv_heads, group, tokens, head_dim, value_dim, keys.blocks, keys.block_bits, keys.pages, keys.page_rows, min(few, reach)
    )  # fmt: skip
    limits = Limits(tokens, bounds.queries, bounds.keys, keys.most)
    options = Optional(
        lse if sinks is None else sinks, lse if key_scale is None else key_scale, lse if value_scale is None else value_scale,
        sinks is not None, key_scale is not None, value_scale is not None,
    )  # fmt: skip
    if sequences > 0:
        paged_part[(sequences * kv_heads, count)](
            query, key, value, table, query_starts, key_lengths, options, counter, parts, out, lse, strides, sizes, limits, rules,
            HEAD_DIM=size, ROWS=few,
        )  # fmt: skip
        if reach > few:
            paged_block[
                lambda meta: (
                    tokens * group // meta["BLOCK_M"] + sequences
                    if meta["COPIES"] == 0
                    else min((tokens * group // meta["BLOCK_M"] + sequences) * kv_heads * block_count, meta["PROGRAMS"]),
                    kv_heads if meta["COPIES"] == 0 else 1,
                    block_count if meta["COPIES"] == 0 else 1,
                )
            ](
                query, key, value, table, query_starts, key_lengths, options, counter,
                Parts(values, weights, block_count, chunk, groups, rows), out, lse, strides, sizes, limits, rules, HEAD_DIM=size, ROWS=16,
            )  # fmt: skip
        if count > 1:
            paged_sum[lambda meta: (sequences * kv_heads, kp.cdiv(rows, meta["BLOCK_M"]), kp.cdiv(value_dim, meta["COLUMNS"]))](
                query_starts, key_lengths, options, parts, out, lse, strides, sizes, limits, rules, HEAD_DIM=MAX_HEAD_DIM,
                ROWS=16 if rows > few else 4,
            )  # fmt: skip
    return out, lse
