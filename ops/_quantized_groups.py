"""Kernels of quantized_matmul on GPUs, for few rows of bfloat16 and for int8: tensor cores multiply codes, scales multiply what they sum."""

import kernelpack as kp
import kernelpack.language as tl

from ._quantized_products import scale_place, store_block, words_at
from ._quantized_weights import TILE


@kp.jit
def halves_of(pairs):
    """Returns the bfloat16 numbers [P, N, ...] whose bits words [P, N, S, H, 2, 4] hold, two in each."""
    shifts = 16 * tl.arange(0, 2)[None, None, None, None, None, None, :]
    numbers = (pairs[:, :, :, :, :, :, None] >> shifts).to(tl.int16).to(tl.bfloat16, bitcast=True)
    return tl.reshape(numbers, [pairs.shape[0], pairs.shape[1], pairs.shape[2] * pairs.shape[3] * 16])


@kp.jit
def codes_of_four_bits(word, nothing):
    """Returns 16 + codes, bfloat16 [P, N, 32], of words [P, N, 4]: a code is the upper part of a fraction, whose exponent is 4. Bytes 0 and
    2 of a word are neighbours along k, and then bytes 1 and 3: two codes take a shift and one operation."""
    shifts = 4 * tl.arange(0, 2)[:, None] + 8 * tl.arange(0, 2)[None, :]  # of a half, the same for its words, of a byte
    pairs = (word[:, :, None, None, None, :] >> shifts[None, None, None, :, :, None]) << 3
    return halves_of(pairs & 0x00780078 | (0x41804180 - nothing))


@kp.jit
def codes_of_eight_bits(word, nothing):
    """Returns two numbers for each code, whose sum it is, bfloat16 [P, N, 2 K], of words [P, N, K / 4]: first 128 and the lower seven bits of
    each, then -128, or -256 where the sign is set. k has the same order."""
    part = tl.arange(0, 2)[None, None, :, None, None, None]
    bits = tl.where(part == 0, 0x007F007F, 0x00800080)
    above = tl.where(part == 0, 0x43004300 - nothing, -0x3CFF3D00 - nothing)
    shifts = (8 * tl.arange(0, 2))[None, None, None, None, :, None]
    words = tl.reshape(word, [word.shape[0], word.shape[1], 1, word.shape[2] // 4, 1, 4])
    return halves_of((words >> shifts) & bits | above)


@kp.jit
def in_order_of_codes(x, TIMES: tl.constexpr):
    """Returns activations [P, M, K] as [P, TIMES * K, M], with k in the order of codes."""
    shape: tl.constexpr = [x.shape[0], x.shape[1], TIMES, x.shape[2] // 16, 2, 4, 2]
    bytes = tl.permute(tl.reshape(x, [x.shape[0], x.shape[1], 1, x.shape[2] // 16, 4, 2, 2]), (0, 1, 2, 3, 6, 4, 5))
    return tl.permute(tl.reshape(tl.broadcast_to(bytes, shape), [x.shape[0], x.shape[1], TIMES * x.shape[2]]), (0, 2, 1))


@kp.jit
def in_rows_of_eight(tile):
    """Returns columns [P, N, ...] so that neighbours are eight rows apart: the operand that threads hold of which each has loaded
    neighbours."""
    parts: tl.constexpr = tile.shape[0]
    columns: tl.constexpr = tile.shape[1]
    if len(tile.shape) == 2:
        return tl.reshape(tl.permute(tl.reshape(tile, [parts, 8, columns // 8]), (0, 2, 1)), tile.shape)
    return tl.reshape(tl.permute(tl.reshape(tile, [parts, 8, columns // 8, tile.shape[2]]), (0, 2, 1, 3)), tile.shape)


@kp.jit
def group_products(
    x, steps, weight, result, CODES: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr
):
    """A block of the product, as [BLOCK_N, BLOCK_M]. PARTS groups of elements with one scale are multiplied at a time, and have sums of
    their own: warps share them. Codes of four bits are 16 greater, which sums begin below by as much. `steps` [rows, K / 32] are what
    activations are multiplied with; None: they are as they should be."""
    BITS: tl.constexpr = 4 if CODES == 4 else 8
    SIZE: tl.constexpr = 16 if CODES == 16 else 32
    WORDS: tl.constexpr = SIZE * BITS // 32
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    begin = tl.program_id(1) * BLOCK_N
    columns = tl.arange(0, BLOCK_N)
    count = weight.blocks * (32 // SIZE)
    nothing = weight.columns >> 31  # constants would be moved to a register for every pair
    words = words_at(weight, begin, BITS) + columns[None, :, None] + tl.arange(0, WORDS)[None, None, :] * TILE
    flat = tl.arange(0, PARTS * BLOCK_N)  # what a vector of addresses loads runs ahead of the loop
    places = scale_place(weight, begin) + flat % BLOCK_N
    rows = x + m[None, :, None].to(tl.int64) * (weight.blocks * 32) + tl.arange(0, SIZE)[None, None, :]
    inside = (m < result.rows)[None, :, None]
    few = tl.arange(0, BLOCK_M * PARTS)
    own = tl.program_id(0) * BLOCK_M + few // PARTS
    acc = tl.zeros([PARTS, BLOCK_N, BLOCK_M], tl.float32)
    rest = tl.zeros([PARTS, BLOCK_N, BLOCK_M], tl.float32)
    for first in range(0, count, PARTS):
        group = first + tl.arange(0, PARTS)
        word = tl.load(words + tl.minimum(group, count - 1)[:, None, None] * (WORDS * TILE))
        value = tl.load(rows + group[:, None, None] * SIZE, mask=(group < count)[:, None, None] & inside, other=0.0)
        row = tl.minimum(first + flat // BLOCK_N, count - 1)
        place = places + (row if SIZE == 16 else row // weight.per_scale) * TILE
        scale = in_rows_of_eight(tl.reshape(tl.load(weight.scales + place), [PARTS, BLOCK_N]).to(tl.float32))[:, :, None]
        if BITS == 4:
            least = tl.reshape(tl.load(weight.mins + place), [PARTS, BLOCK_N]).to(tl.float32)
            value = in_order_of_codes(value, 1)
            below = tl.dot(tl.full([PARTS, BLOCK_N, SIZE], -16.0, tl.bfloat16), value)
            total = tl.dot(codes_of_four_bits(in_rows_of_eight(word), nothing), value, below)
        else:
            total = tl.dot(codes_of_eight_bits(in_rows_of_eight(word), nothing), in_order_of_codes(value, 2))
        if steps is not None:
            block = (first + few % PARTS) // (32 // SIZE)
            step = tl.load(
                steps + own.to(tl.int64) * weight.blocks + block, mask=(own < result.rows) & (block < weight.blocks), other=0.0
            )
            part = scale * total
            if BITS == 4:
                part += in_rows_of_eight(least * (weight.min_factor / -16))[:, :, None] * below
            acc += tl.trans(tl.reshape(step, [BLOCK_M, PARTS]))[:, None, :] * part
        else:
            acc += scale * total
            if BITS == 4:
                rest += in_rows_of_eight(least)[:, :, None] * below
    if BITS == 4 and steps is None:
        acc -= rest * (weight.min_factor / 16)
    total = tl.reshape(tl.sum(acc, axis=0), [BLOCK_N // 8, 8, BLOCK_M])
    total = tl.reshape(tl.permute(total, (1, 0, 2)), [BLOCK_N, BLOCK_M])
    store_block(result, tl.trans(total), m, begin + columns, weight.columns)


@kp.jit
def quantized_groups_kernel(
    x, weight, result, CODES: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr
):
    """A block of the product with activations as they are."""
    group_products(x, None, weight, result, CODES, BLOCK_M, BLOCK_N, PARTS)


@kp.jit
def int8_groups_kernel(
    values, steps, weight, result, CODES: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr
):
    """A block of the product with activations that are whole numbers up to 127, as bfloat16: sums of a group are exact in float32."""
    group_products(values, steps, weight, result, CODES, BLOCK_M, BLOCK_N, PARTS)
