"""Kernels of quantized_matmul with activations in int8: a scale for each 32 of them, sums of products in int32."""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl

from ._quantized_products import ONCE, codes_of, mins_at, scale_place, scales_at, store_block, store_row, words_at
from ._quantized_rows import ROUNDING
from ._quantized_weights import TILE


class Activations(NamedTuple):
    """Rows of activations [rows, K]: `values` in int8 (GPUs: the same numbers in bfloat16), what each 32 of them are multiplied with, and
    the sum of each 16 (GPUs: no matter what)."""

    values: tl.tensor
    scales: tl.tensor
    sums: tl.tensor


@kp.jit
def quantize_activations_kernel(x, activations, blocks, BLOCKS: tl.constexpr, SUMS: tl.constexpr):
    """Rounds a part of a row to int8: each 32 elements to multiples of 1/127 of the largest of them, halves to even. Quotients are rounded once, on
    GPUs too, so that codes are the same everywhere."""
    row = tl.program_id(0).to(tl.int64) * blocks
    for begin in range(tl.program_id(1) * BLOCKS, blocks, tl.num_programs(1) * BLOCKS):
        block = begin + tl.arange(0, BLOCKS)
        half = 2 * begin + tl.arange(0, 2 * BLOCKS)
        at = half[:, None] * 16 + tl.arange(0, 16)[None, :]
        value = tl.load(x + row * 32 + at, mask=half[:, None] < 2 * blocks, other=0.0).to(tl.float32)
        bits = value.to(tl.int32, bitcast=True) & 0x7FFFFFFF  # ordered as magnitudes are, with NaN above all
        peak = tl.max(tl.reshape(tl.max(bits, axis=1), [BLOCKS, 2]), axis=1).to(tl.float32, bitcast=True)
        scale = tl.div_rn(peak, 127.0)
        tl.store(activations.scales + row + block, scale, mask=block < blocks)
        step = tl.reshape(tl.broadcast_to(scale[:, None], [BLOCKS, 2]), [2 * BLOCKS])[:, None]
        rounded = tl.where((step > 0.0) & (step < float("inf")), tl.div_rn(value, step), 0.0) + ROUNDING - ROUNDING
        code = tl.clamp(rounded, -127.0, 127.0).to(tl.int8)  # a subnormal step may be too small
        tl.store(
            activations.values + row * 32 + at, code.to(activations.values.dtype.element_ty), mask=half[:, None] < 2 * blocks
        )
        if SUMS:
            tl.store(activations.sums + row * 2 + half, tl.sum(code.to(tl.int32), axis=1), mask=half < 2 * blocks)


@kp.jit
def dot_of_bytes(codes, x, acc, BIT: tl.constexpr, MASK: tl.constexpr):
    """Returns acc and the sum of four products: of codes, those bits from BIT on of every byte that MASK keeps, and of signed bytes of x."""
    for byte in tl.static_range(4):
        acc += ((codes >> (8 * byte + BIT)) & MASK) * (x >> (8 * byte)).to(tl.int8).to(tl.int32)
    return acc


@kp.jit
def int8_in_vectors(
    activations, weight, result, top, begin,
    BITS: tl.constexpr, HALVES: tl.constexpr, ROWS: tl.constexpr, VECTORS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """A block of the product, VECTORS vectors of LANES columns of each of ROWS rows, listed row by row. A word of codes is loaded once for
    all rows, and every sum stays in a register. Codes of eight bits are made unsigned, 128 greater, which sums of x undo."""
    PARTS: tl.constexpr = ROWS * VECTORS
    tile = words_at(weight, begin, BITS) + tl.arange(0, LANES)
    places = scale_place(weight, begin) + tl.arange(0, LANES)
    first = [tl.minimum(top + row, result.rows - 1).to(tl.int64) * weight.blocks for row in tl.static_range(ROWS)]
    x = activations.values.to(tl.pointer_type(tl.int32), bitcast=True)
    acc = [tl.zeros([LANES], tl.float32) for i in tl.static_range(PARTS)]
    for block in range(weight.blocks):
        low = [tl.zeros([LANES], tl.int32) for i in tl.static_range(PARTS)]
        high = low
        for i in tl.static_range(4):
            word = [
                tl.load(tile + (block * BITS + i) * TILE + LANES * v, eviction_policy=ONCE) for v in tl.static_range(VECTORS)
            ]
            below = [tl.load(x + (first[row] + block) * 8 + i) for row in tl.static_range(ROWS)]
            above = [tl.load(x + (first[row] + block) * 8 + 4 + i) for row in tl.static_range(ROWS)]
            if BITS == 4:
                low = [dot_of_bytes(word[i % VECTORS], below[i // VECTORS], low[i], 0, 15) for i in tl.static_range(PARTS)]
                high = [dot_of_bytes(word[i % VECTORS], above[i // VECTORS], high[i], 4, 15) for i in tl.static_range(PARTS)]
            else:
                upper = [
                    tl.load(tile + (block * BITS + 4 + i) * TILE + LANES * v, eviction_policy=ONCE)
                    for v in tl.static_range(VECTORS)
                ]
                word = [w ^ -0x7F7F7F80 for w in word]
                upper = [w ^ -0x7F7F7F80 for w in upper]
                low = [dot_of_bytes(word[i % VECTORS], below[i // VECTORS], low[i], 0, 255) for i in tl.static_range(PARTS)]
                high = [dot_of_bytes(upper[i % VECTORS], above[i // VECTORS], high[i], 0, 255) for i in tl.static_range(PARTS)]
        scale = [tl.load(activations.scales + first[row] + block) for row in tl.static_range(ROWS)]
        below = [tl.load(activations.sums + 2 * (first[row] + block)) for row in tl.static_range(ROWS)]
        above = [tl.load(activations.sums + 2 * (first[row] + block) + 1) for row in tl.static_range(ROWS)]
        if BITS == 8:
            low = [low[i] - 128 * below[i // VECTORS] for i in tl.static_range(PARTS)]
            high = [high[i] - 128 * above[i // VECTORS] for i in tl.static_range(PARTS)]
        place = places + (2 * block if HALVES else block // weight.per_scale) * TILE
        by = [scales_at(weight, place + LANES * v) for v in tl.static_range(VECTORS)]
        if HALVES:
            other = [scales_at(weight, place + TILE + LANES * v) for v in tl.static_range(VECTORS)]
            part = [by[i % VECTORS] * low[i].to(tl.float32) for i in tl.static_range(PARTS)]
            part = [part[i] + other[i % VECTORS] * high[i].to(tl.float32) for i in tl.static_range(PARTS)]
            acc = [acc[i] + scale[i // VECTORS] * part[i] for i in tl.static_range(PARTS)]
        else:
            part = [scale[i // VECTORS] * (low[i] + high[i]).to(tl.float32) for i in tl.static_range(PARTS)]
            acc = [acc[i] + by[i % VECTORS] * part[i] for i in tl.static_range(PARTS)]
        if BITS == 4:
            least = [mins_at(weight, place + LANES * v) for v in tl.static_range(VECTORS)]
            total = [scale[row] * (below[row] + above[row]).to(tl.float32) for row in tl.static_range(ROWS)]
            acc = [acc[i] + least[i % VECTORS] * total[i // VECTORS] for i in tl.static_range(PARTS)]
    for i in tl.static_range(PARTS):
        row = top + i // VECTORS
        if row < result.rows:
            store_row(result, acc[i], row.to(tl.int64), begin + i % VECTORS * LANES + tl.arange(0, LANES), weight.columns)


@kp.jit
def int8_in_tiles(
    activations, weight, result, top, begin,
    BITS: tl.constexpr, HALVES: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A block of the product: a tile of 32 steps of k at a time, whose sums are scaled."""
    m = top + tl.arange(0, BLOCK_M)
    n = begin + tl.arange(0, BLOCK_N)
    k = tl.arange(0, 32)
    here = m < result.rows
    places = scale_place(weight, begin) + tl.arange(0, BLOCK_N)
    rows = activations.values + m[:, None].to(tl.int64) * (weight.blocks * 32) + k[None, :]
    first = m.to(tl.int64) * weight.blocks
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for block in range(weight.blocks):
        x = tl.load(rows + block * 32, mask=here[:, None], other=0)
        codes = codes_of(weight, block, begin, BITS, 1, BLOCK_N).to(tl.int8)
        scale = tl.load(activations.scales + first + block, mask=here, other=0.0)[:, None]
        if HALVES:
            low = tl.dot(tl.where(k[None, :] < 16, x, 0), codes).to(tl.float32)
            high = tl.dot(tl.where(k[None, :] < 16, 0, x), codes).to(tl.float32)
            place = places + 2 * block * TILE
            part = scales_at(weight, place)[None, :] * low
            acc += scale * (part + scales_at(weight, place + TILE)[None, :] * high)
        else:
            place = places + block // weight.per_scale * TILE
            acc += scales_at(weight, place)[None, :] * (scale * tl.dot(x, codes).to(tl.float32))
            if BITS == 4:
                sums = activations.sums + 2 * (first + block)
                total = tl.load(sums, mask=here, other=0) + tl.load(sums + 1, mask=here, other=0)
                acc += mins_at(weight, place)[None, :] * (scale * total.to(tl.float32)[:, None])
    store_block(result, acc, m, n, weight.columns)


@kp.jit
def int8_kernel(
    activations, weight, result, CODES: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, LANES: tl.constexpr
):
    """A block of the product; LANES: in vectors of so many columns, or 0 for tiles. Both give the same bits."""
    BITS: tl.constexpr = 4 if CODES == 4 else 8
    top, begin = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    if LANES:
        int8_in_vectors(activations, weight, result, top, begin, BITS, CODES == 16, BLOCK_M, BLOCK_N // LANES, LANES)
    else:
        int8_in_tiles(activations, weight, result, top, begin, BITS, CODES == 16, BLOCK_M, BLOCK_N)
