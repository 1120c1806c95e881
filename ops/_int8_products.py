"""Kernels of quantized_matmul with activations in int8: a scale for each 32 of them, sums of products in int32."""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl

from ._quantized_products import ONCE, codes_of, mins_at, scale_place, scales_at, store_block, store_row, words_at
from ._quantized_rows import ROUNDING
from ._quantized_weights import TILE


class Activations(NamedTuple):
    """Rows of activations [rows, K] as whole numbers: `values` holds a number's bytes, the high one first, in int8 [rows, bytes, K] (GPUs: one,
    in bfloat16), `scales` what each 32 numbers are multiplied with, `sums` the sum of each 16 bytes (GPUs: no matter what)."""

    values: tl.tensor
    scales: tl.tensor
    sums: tl.tensor


@kp.jit
def bytes_of(number):
    """Returns the three signed bytes of whole numbers up to 8355711, the high one first. All of it is exact in float32."""
    high = tl.floor(number * 2.0**-16 + (0.5 + 2.0**-9))
    rest = number - high * 2.0**16
    middle = tl.floor(rest * 2.0**-8 + 0.5)
    return [high, middle, rest - middle * 2.0**8]


@kp.jit
def quantize_activations_kernel(x, activations, blocks, BYTES: tl.constexpr, BLOCKS: tl.constexpr, SUMS: tl.constexpr):
    """Rounds a part of a row to whole numbers of BYTES bytes: each 32 elements to multiples of 1/127 of the largest of them, halves to even, or
    with three bytes of 1/8355711, halves up. Quotients are rounded once, on GPUs too, so that numbers are the same everywhere."""
    row = tl.program_id(0).to(tl.int64) * blocks
    largest: tl.constexpr = 127.0 if BYTES == 1 else 127.0 * (2**16 + 2**8 + 1)  # of numbers whose bytes are -127 or more
    for begin in range(tl.program_id(1) * BLOCKS, blocks, tl.num_programs(1) * BLOCKS):
        block = begin + tl.arange(0, BLOCKS)
        half = 2 * begin + tl.arange(0, 2 * BLOCKS)
        at = half[:, None] * 16 + tl.arange(0, 16)[None, :]
        value = tl.load(x + row * 32 + at, mask=half[:, None] < 2 * blocks, other=0.0).to(tl.float32)
        bits = value.to(tl.int32, bitcast=True) & 0x7FFFFFFF  # ordered as magnitudes are, with NaN above all
        peak = tl.max(tl.reshape(tl.max(bits, axis=1), [BLOCKS, 2]), axis=1).to(tl.float32, bitcast=True)
        scale = tl.div_rn(peak, largest)
        tl.store(activations.scales + row + block, scale, mask=block < blocks)
        step = tl.reshape(tl.broadcast_to(scale[:, None], [BLOCKS, 2]), [2 * BLOCKS])[:, None]
        quotient = tl.where((step > 0.0) & (step < float("inf")), tl.div_rn(value, step), 0.0)
        number = tl.clamp(quotient, -largest, largest)  # a subnormal step may be too small
        parts = [number + ROUNDING - ROUNDING] if BYTES == 1 else bytes_of(tl.floor(number + 0.5))
        for byte in tl.static_range(BYTES):
            place = row * BYTES + byte * blocks
            code = parts[byte].to(tl.int8)
            tl.store(
                activations.values + place * 32 + at,
                code.to(activations.values.dtype.element_ty),
                mask=half[:, None] < 2 * blocks,
            )
            if SUMS:
                tl.store(activations.sums + place * 2 + half, tl.sum(code.to(tl.int32), axis=1), mask=half < 2 * blocks)


@kp.jit
def dot_of_bytes(codes, x, acc, BIT: tl.constexpr, MASK: tl.constexpr):
    """Returns acc and the sum of four products: of codes, those bits from BIT on of every byte that MASK keeps, and of signed bytes of x."""
    for byte in tl.static_range(4):
        acc += ((codes >> (8 * byte + BIT)) & MASK) * (x >> (8 * byte)).to(tl.int8).to(tl.int32)
    return acc


@kp.jit
def number_of(parts, row: tl.constexpr, BYTES: tl.constexpr):
    """Returns a row's sum of products with whole numbers, in float32, from the sums with their bytes."""
    high = parts[row * BYTES].to(tl.float32)
    if BYTES == 1:
        return high
    return high * 65536.0 + (parts[row * BYTES + 1] * 256 + parts[row * BYTES + 2]).to(tl.float32)


@kp.jit
def int8_in_rows(
    activations, weight, result, top, begin,
    BITS: tl.constexpr, HALVES: tl.constexpr, BYTES: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A block of the product, columns in the lanes of each of ROWS rows, or of each byte of their numbers. A word of codes is loaded once for all
    of them, and every sum stays in a register. Codes of eight bits are made unsigned, 128 greater, which sums of x undo."""
    PARTS: tl.constexpr = ROWS * BYTES
    tile = words_at(weight, begin, BITS) + tl.arange(0, BLOCK_N)
    places = scale_place(weight, begin) + tl.arange(0, BLOCK_N)
    rows = [tl.minimum(top + row, result.rows - 1).to(tl.int64) * weight.blocks for row in tl.static_range(ROWS)]
    first = [rows[i // BYTES] * BYTES + i % BYTES * weight.blocks for i in tl.static_range(PARTS)]
    x = activations.values.to(tl.pointer_type(tl.int32), bitcast=True)
    acc = [tl.zeros([BLOCK_N], tl.float32) for row in tl.static_range(ROWS)]
    for block in range(weight.blocks):
        low = [tl.zeros([BLOCK_N], tl.int32) for i in tl.static_range(PARTS)]
        high = low
        for word_number in tl.static_range(4):
            word = tl.load(tile + (block * BITS + word_number) * TILE, eviction_policy=ONCE)
            below = [tl.load(x + (first[i] + block) * 8 + word_number) for i in tl.static_range(PARTS)]
            above = [tl.load(x + (first[i] + block) * 8 + 4 + word_number) for i in tl.static_range(PARTS)]
            if BITS == 4:
                low = [dot_of_bytes(word, below[i], low[i], 0, 15) for i in tl.static_range(PARTS)]
                low = [dot_of_bytes(word, above[i], low[i], 4, 15) for i in tl.static_range(PARTS)]
            else:
                upper = tl.load(tile + (block * BITS + 4 + word_number) * TILE, eviction_policy=ONCE) ^ -0x7F7F7F80
                word ^= -0x7F7F7F80
                low = [dot_of_bytes(word, below[i], low[i], 0, 255) for i in tl.static_range(PARTS)]
                high = [dot_of_bytes(upper, above[i], high[i], 0, 255) for i in tl.static_range(PARTS)]
        scale = [tl.load(activations.scales + rows[row] + block) for row in tl.static_range(ROWS)]
        below = [tl.load(activations.sums + 2 * (first[i] + block)) for i in tl.static_range(PARTS)]
        above = [tl.load(activations.sums + 2 * (first[i] + block) + 1) for i in tl.static_range(PARTS)]
        if BITS == 8:
            low = [low[i] - 128 * below[i] for i in tl.static_range(PARTS)]
            high = [high[i] - 128 * above[i] for i in tl.static_range(PARTS)]
        place = places + (2 * block if HALVES else block // weight.per_scale) * TILE
        by = scales_at(weight, place)
        if HALVES:
            other = scales_at(weight, place + TILE)
            part = [by * number_of(low, row, BYTES) + other * number_of(high, row, BYTES) for row in tl.static_range(ROWS)]
            acc = [acc[row] + scale[row] * part[row] for row in tl.static_range(ROWS)]
        else:
            both = [low[i] + high[i] for i in tl.static_range(PARTS)]
            acc = [acc[row] + by * (scale[row] * number_of(both, row, BYTES)) for row in tl.static_range(ROWS)]
        if BITS == 4:
            least = mins_at(weight, place)
            both = [below[i] + above[i] for i in tl.static_range(PARTS)]
            total = [scale[row] * number_of(both, row, BYTES) for row in tl.static_range(ROWS)]
            acc = [acc[row] + least * total[row] for row in tl.static_range(ROWS)]
    for i in tl.static_range(ROWS):
        row = top + i
        if row < result.rows:
            store_row(result, acc[i], row.to(tl.int64), begin + tl.arange(0, BLOCK_N), weight.columns)


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
    activations, weight, result, CODES: tl.constexpr, BYTES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """A block of the product, in tiles or row by row. Both give the same bits."""
    BITS: tl.constexpr = 4 if CODES == 4 else 8
    top, begin = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    if TILES:
        int8_in_tiles(activations, weight, result, top, begin, BITS, CODES == 16, BLOCK_M, BLOCK_N)
    else:
        int8_in_rows(activations, weight, result, top, begin, BITS, CODES == 16, BYTES, BLOCK_M, BLOCK_N)
