"""Kernels of quantized_matmul with activations in int8: a scale for each 32 of them, sums of products in int32."""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl

from ._quantized_products import ONCE, codes_of, mins_at, scale_place, scales_at, store_block, store_row, words_at
from ._quantized_rows import ROUNDING
from ._quantized_weights import TILE

LARGEST = tl.constexpr({1: 127.0, 3: 127.0 * (2**16 + 2**8 + 1)})
"""The largest whole number of so many bytes that are -127 or more."""


class Activations(NamedTuple):
    """Rows of activations [rows, K] as whole numbers. What all rows have of 32 elements lies together, with space for so many rows: `values`
    holds a number's bytes, the high one first, in int8 [K / 32, space, bytes, 32], `scales` first what each 32 numbers are multiplied with,
    then the sum of these products, in float32 [K / 32, 2, space], and `sums` -128 times the sum of each 16 bytes, in int32
    [K / 32, space, bytes, 2]."""

    values: tl.tensor
    scales: tl.tensor
    sums: tl.tensor
    space: int


@kp.jit
def bytes_of(number):
    """Returns the three signed bytes of whole numbers up to 8355711, the high one first. All of it is exact in float32."""
    high = tl.floor(number * 2.0**-16 + (0.5 + 2.0**-9))
    rest = number - high * 2.0**16
    middle = tl.floor(rest * 2.0**-8 + 0.5)
    return [high, middle, rest - middle * 2.0**8]


@kp.jit
def number_of(parts, row: tl.constexpr, BYTES: tl.constexpr):
    """Returns a row's sum of products with whole numbers, in float32, from the sums with their bytes."""
    high = parts[row * BYTES].to(tl.float32)
    if BYTES == 1:
        return high
    return high * 65536.0 + (parts[row * BYTES + 1] * 256 + parts[row * BYTES + 2]).to(tl.float32)


@kp.jit
def magnitude(value):
    """Returns the bits of |value|, float32, which are ordered as magnitudes are, with NaN above all."""
    return value.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@kp.jit
def whole_numbers(value, step, BYTES: tl.constexpr):
    """Returns the bytes of values in multiples of a step: halves to even, or with three bytes up. A quotient is rounded once, on GPUs too, so
    that numbers are the same everywhere. A step that is 0, infinite or NaN gives 0."""
    quotient = tl.where((step > 0.0) & (step < float("inf")), tl.div_rn(value, step), 0.0)
    number = tl.clamp(quotient, -LARGEST[BYTES], LARGEST[BYTES])  # a subnormal step may be too small
    parts = [number + ROUNDING - ROUNDING] if BYTES == 1 else bytes_of(tl.floor(number + 0.5))
    return [parts[byte].to(tl.int8) for byte in tl.static_range(BYTES)]


@kp.jit
def quantize_block(x, activations, block, row, blocks, BYTES: tl.constexpr):
    """Rounds 32 elements of a row."""
    lanes = tl.arange(0, 16)
    place = block.to(tl.int64) * activations.space + row
    scales = activations.scales + (place + block.to(tl.int64) * activations.space)
    codes = activations.values + place * (32 * BYTES)
    sums = activations.sums + place * (2 * BYTES)
    at = x + (row * blocks + block) * 32
    halves = [tl.load(at + 16 * half + lanes).to(tl.float32) for half in tl.static_range(2)]
    peak = tl.max(tl.maximum(magnitude(halves[0]), magnitude(halves[1])), axis=0).to(tl.float32, bitcast=True)
    scale = tl.div_rn(peak, LARGEST[BYTES])
    first = whole_numbers(halves[0], scale, BYTES)
    second = whole_numbers(halves[1], scale, BYTES)
    for byte in tl.static_range(BYTES):
        tl.store(codes + 32 * byte + lanes, first[byte])
        tl.store(codes + 32 * byte + 16 + lanes, second[byte])
    below = [tl.sum(first[byte].to(tl.int32), axis=0) for byte in tl.static_range(BYTES)]
    above = [tl.sum(second[byte].to(tl.int32), axis=0) for byte in tl.static_range(BYTES)]
    for byte in tl.static_range(BYTES):
        tl.store(sums + 2 * byte, -128 * below[byte])
        tl.store(sums + 2 * byte + 1, -128 * above[byte])
    both = [below[byte] + above[byte] for byte in tl.static_range(BYTES)]
    tl.store(scales, scale)
    tl.store(scales + activations.space, scale * number_of(both, 0, BYTES))


@kp.jit
def quantize_activations_kernel(x, activations, rows, blocks, count, BYTES: tl.constexpr, ROWS: tl.constexpr):
    """Rounds `count` blocks of 32 elements of each of ROWS rows to whole numbers of BYTES bytes: multiples of 1/127 of the largest of a block, or
    with three bytes of 1/8355711. What lies together is written by one thread. Rows after the last one are multiplied with 0, whatever
    numbers they have: subnormal ones would take hundreds of cycles."""
    begin, first = tl.program_id(0) * count, tl.program_id(1) * ROWS
    for block in range(begin, tl.minimum(begin + count, blocks)):
        for row in range(first, tl.minimum(first + ROWS, rows)):
            quantize_block(x, activations, block, row.to(tl.int64), blocks, BYTES)
        for row in range(tl.maximum(first, rows), tl.minimum(first + ROWS, activations.space)):
            scales = activations.scales + (2 * block.to(tl.int64) * activations.space + row)
            tl.store(scales, 0.0)
            tl.store(scales + activations.space, 0.0)


@kp.jit
def round_activations_kernel(x, values, scales, blocks, BLOCKS: tl.constexpr):
    """Rounds a part of a row as quantize_activations_kernel with one byte does, on GPUs: to `values` bfloat16 [rows, K] and `scales` float32
    [rows, K / 32]."""
    row = tl.program_id(0).to(tl.int64) * blocks
    block = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    inside = block < blocks
    at = row * 32 + block[:, None] * 32 + tl.arange(0, 32)[None, :]
    value = tl.load(x + at, mask=inside[:, None], other=0.0).to(tl.float32)
    scale = tl.div_rn(tl.max(magnitude(value), axis=1).to(tl.float32, bitcast=True), LARGEST[1])
    tl.store(scales + row + block, scale, mask=inside)
    (number,) = whole_numbers(value, scale[:, None], 1)
    tl.store(values + at, number.to(tl.bfloat16), mask=inside[:, None])


@kp.jit
def dot_of_bytes(codes, x, acc, BIT: tl.constexpr, MASK: tl.constexpr):
    """Returns acc and the sum of four products: of codes, those bits from BIT on of every byte that MASK keeps, and of signed bytes of x."""
    for byte in tl.static_range(4):
        acc += ((codes >> (8 * byte + BIT)) & MASK) * (x >> (8 * byte)).to(tl.int8).to(tl.int32)
    return acc


@kp.jit
def int8_in_rows(
    activations, weight, result, top, begin,
    BITS: tl.constexpr, HALVES: tl.constexpr, BYTES: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A block of the product, columns in the lanes of each of ROWS rows, or of each byte of their numbers. A word of codes is loaded once for all
    of them, and every sum stays in a register: one for both halves of a block, where they share a scale and other rows' products fill the time
    that a sum takes. Codes of eight bits are made unsigned, 128 greater, which the first of their sums undo. Rows after the last one are of no
    matter."""
    PARTS: tl.constexpr = ROWS * BYTES
    tile = words_at(weight, begin, BITS) + tl.arange(0, BLOCK_N)
    places = scale_place(weight, begin) + tl.arange(0, BLOCK_N)
    x = activations.values.to(tl.pointer_type(tl.int32), bitcast=True)
    acc = [tl.zeros([BLOCK_N], tl.float32) for row in tl.static_range(ROWS)]
    for block in range(weight.blocks):
        own = block.to(tl.int64) * activations.space + top
        scales = activations.scales + (own + block.to(tl.int64) * activations.space)
        scale = [tl.load(scales + row) for row in tl.static_range(ROWS)]
        total = [tl.load(scales + activations.space + row) for row in tl.static_range(ROWS)]
        if BITS == 4:
            low = [tl.zeros([BLOCK_N], tl.int32) for i in tl.static_range(PARTS)]
            high = low
        else:
            sums = activations.sums + own * (2 * BYTES)
            low = [tl.load(sums + 2 * i) + tl.zeros([BLOCK_N], tl.int32) for i in tl.static_range(PARTS)]
            high = [tl.load(sums + 2 * i + 1) + tl.zeros([BLOCK_N], tl.int32) for i in tl.static_range(PARTS)]
        for word_number in tl.static_range(4):
            word = tl.load(tile + (block * BITS + word_number) * TILE, eviction_policy=ONCE)
            words = x + own * (8 * BYTES) + word_number
            below = [tl.load(words + 8 * i) for i in tl.static_range(PARTS)]
            above = [tl.load(words + 8 * i + 4) for i in tl.static_range(PARTS)]
            if BITS == 4:
                low = [dot_of_bytes(word, below[i], low[i], 0, 15) for i in tl.static_range(PARTS)]
                low = [dot_of_bytes(word, above[i], low[i], 4, 15) for i in tl.static_range(PARTS)]
            else:
                upper = tl.load(tile + (block * BITS + 4 + word_number) * TILE, eviction_policy=ONCE) ^ -0x7F7F7F80
                word ^= -0x7F7F7F80
                low = [dot_of_bytes(word, below[i], low[i], 0, 255) for i in tl.static_range(PARTS)]
                if HALVES or PARTS <= 2:
                    high = [dot_of_bytes(upper, above[i], high[i], 0, 255) for i in tl.static_range(PARTS)]
                else:
                    low = [dot_of_bytes(upper, above[i], low[i], 0, 255) for i in tl.static_range(PARTS)]
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
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for block in range(weight.blocks):
        own = block.to(tl.int64) * activations.space + m
        x = tl.load(activations.values + own[:, None] * 32 + k[None, :], mask=here[:, None], other=0)
        codes = tl.reshape(codes_of(weight, block + tl.arange(0, 1), begin, BITS, BITS, BLOCK_N).to(tl.int8), [32, BLOCK_N])
        scales = activations.scales + block.to(tl.int64) * activations.space + own
        scale = tl.load(scales, mask=here, other=0.0)[:, None]
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
                total = tl.load(scales + activations.space, mask=here, other=0.0)
                acc += mins_at(weight, place)[None, :] * total[:, None]
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
