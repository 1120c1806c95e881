"""Kernels of quantized_matmul with activations as they are: rows that read each word of codes once, and blocks for more rows."""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl

from ._quantized_weights import TILE

ONCE = tl.constexpr("evict_first")
"""How kernels load codes that they pass over once: CPUs then ask for those that come 8 kB later."""


class Weight(NamedTuple):
    """A quantised weight W [N, K] (ops/_quantized_weights.py). `per_scale` blocks of 32 along k share a row of scales, or a block has two of
    them. Each column of a row of scales adds min_factor * mins to its elements: mins are the scales themselves where there are no mins,
    and the factor moves codes of four bits to around zero."""

    codes: tl.tensor
    scales: tl.tensor
    mins: tl.tensor
    min_factor: float
    columns: int
    blocks: int
    groups: int
    per_scale: int


class Result(NamedTuple):
    """Where the product [rows, N] goes, and the bias [N] that is added to it: without has_bias it is any tensor of its dtype."""

    out: tl.tensor
    bias: tl.tensor
    has_bias: bool
    rows: int


@kp.jit
def scale_place(weight, begin):
    """Returns where the scales of column `begin` lie, and its mins, counted from the first."""
    return (begin // TILE).to(tl.int64) * weight.groups * TILE + begin % TILE


@kp.jit
def scales_at(weight, place):
    """Returns scales in float32."""
    return tl.load(weight.scales + place).to(tl.float32)


@kp.jit
def mins_at(weight, place):
    """Returns what scales add to every element."""
    return tl.load(weight.mins + place).to(tl.float32) * weight.min_factor


@kp.jit
def store_row(result, acc, row, n, columns):
    """Stores a part of a row of the product, with bias."""
    inside = n < columns
    acc += tl.load(result.bias + n, mask=inside & result.has_bias, other=0.0).to(tl.float32)
    tl.store(result.out + row * columns + n, acc.to(result.out.dtype.element_ty), mask=inside)


@kp.jit
def times_code(x, word, BIT: tl.constexpr):
    """Returns x times the four bits of a word from BIT on. The bits stay where they are: x is divided in their place, which is exact, and
    once for all words."""
    if BIT == 28:
        return x * ((word >> 28) & 15).to(tl.float32)
    return (x * 2.0**-BIT) * (word & (15 << BIT)).to(tl.float32)


@kp.jit
def signed_byte(word, BYTE: tl.constexpr):
    """Returns a signed byte of a word, as float32."""
    return ((word << (24 - 8 * BYTE)) >> 24).to(tl.float32)


@kp.jit
def words_at(weight, begin, BITS: tl.constexpr):
    """Returns where the words of column `begin` lie, which begins in its tile as many columns as are taken at a time, or more."""
    tile = (begin // TILE).to(tl.int64) * weight.blocks * (BITS * TILE)
    return weight.codes + tile + begin % TILE


@kp.jit
def quantized_rows_kernel(x, weight, result, CODES: tl.constexpr, BLOCK_N: tl.constexpr, WORDS: tl.constexpr):
    """A block of columns of one row, with WORDS words along k at a time, which a GPU's threads share."""
    BITS: tl.constexpr = 4 if CODES == 4 else 8
    row = tl.program_id(0).to(tl.int64)
    begin = tl.program_id(1) * BLOCK_N
    x += row * weight.blocks * 32
    n = begin + tl.arange(0, BLOCK_N)
    tile = words_at(weight, begin, BITS) + tl.arange(0, BLOCK_N)[None, :]
    places = scale_place(weight, begin) + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros([WORDS, BLOCK_N], tl.float32)
    for first_word in range(0, weight.blocks * BITS, WORDS):
        at = first_word + tl.arange(0, WORDS)
        there = at < weight.blocks * BITS
        word = tl.load(tile + at[:, None] * TILE, mask=there[:, None], other=0)
        block, i = at // BITS, at % BITS
        part, total = tl.zeros(acc.shape, tl.float32), tl.zeros([WORDS], tl.float32)
        for byte in tl.static_range(4):
            first = tl.load(x + block * 32 + 4 * i + byte, mask=there, other=0.0).to(tl.float32)
            if BITS == 4:
                second = tl.load(x + block * 32 + 16 + 4 * i + byte, mask=there, other=0.0).to(tl.float32)
                part += times_code(first[:, None], word, 8 * byte) + times_code(second[:, None], word, 8 * byte + 4)
                total += first + second
            else:
                part += first[:, None] * signed_byte(word, byte)
        group = tl.minimum(
            2 * block + i // 4 if CODES == 16 else block // weight.per_scale, weight.groups - 1
        )  # part is 0 after the last word
        place = places + group[:, None] * TILE
        if BITS == 4:
            acc += mins_at(weight, place) * total[:, None]
        acc += scales_at(weight, place) * part
    store_row(result, tl.sum(acc, axis=0), row, n, weight.columns)


@kp.jit
def codes_of(weight, part, begin, WORDS: tl.constexpr, BITS: tl.constexpr, BLOCK_N: tl.constexpr):
    """Returns the codes of parts of the blocks, which have WORDS words of a column each, int32: [parts, WORDS, 4, BLOCK_N] of 8 bits, of 4
    bits with an axis of halves after that of the parts. 0 beyond the last block."""
    at = (part[:, None] * WORDS + tl.arange(0, WORDS)[None, :])[:, :, None]
    there = at < weight.blocks * BITS
    word = tl.load(words_at(weight, begin, BITS) + at * TILE + tl.arange(0, BLOCK_N)[None, None, :], mask=there, other=0)
    bytes = tl.arange(0, 4) * 8
    if BITS == 4:
        shifts = bytes[None, :] + tl.arange(0, 2)[:, None] * 4  # of a half, the same for its words, of a byte
        return (word[:, None, :, None, :] >> shifts[None, :, None, :, None]) & 15
    return (word[:, :, None, :] << (24 - bytes)[None, None, :, None]) >> 24


@kp.jit
def weight_of(
    weight, block, begin, dtype: tl.constexpr, BITS: tl.constexpr, HALVES: tl.constexpr, BLOCKS: tl.constexpr, BLOCK_N: tl.constexpr
):  # fmt: skip
    """Returns elements of BLOCKS blocks of the weight from `block` on, [32 * BLOCKS, BLOCK_N]; 0 beyond the last block."""
    PARTS: tl.constexpr = 2 if HALVES else 1  # of a block, each with a scale
    part = block * PARTS + tl.arange(0, BLOCKS * PARTS)
    group = part if HALVES else part // weight.per_scale
    there = (group < weight.groups)[:, None]
    place = scale_place(weight, begin) + group[:, None] * TILE + tl.arange(0, BLOCK_N)[None, :]
    scale = tl.load(weight.scales + place, mask=there, other=0.0).to(tl.float32)
    code = codes_of(weight, part, begin, BITS // PARTS, BITS, BLOCK_N).to(tl.float32)
    if BITS == 4:
        least = tl.load(weight.mins + place, mask=there, other=0.0).to(tl.float32) * weight.min_factor
        element = code * scale[:, None, None, None, :] + least[:, None, None, None, :]
    else:
        element = code * scale[:, None, None, :]
    return tl.reshape(element.to(dtype), [BLOCKS * 32, BLOCK_N])


@kp.jit
def dequantize_kernel(weight, out, CODES: tl.constexpr, BLOCK_N: tl.constexpr, BLOCKS: tl.constexpr):
    """Writes a part of the weight, transposed: [K, N]."""
    BITS: tl.constexpr = 4 if CODES == 4 else 8
    block = tl.program_id(0) * BLOCKS
    begin = tl.program_id(1) * BLOCK_N
    n = begin + tl.arange(0, BLOCK_N)
    k = block * 32 + tl.arange(0, 32 * BLOCKS)
    element = weight_of(weight, block, begin, out.dtype.element_ty, BITS, CODES == 16, BLOCKS, BLOCK_N)
    inside = (k < weight.blocks * 32)[:, None] & (n < weight.columns)[None, :]
    tl.store(out + k[:, None].to(tl.int64) * weight.columns + n[None, :], element, mask=inside)


@kp.jit
def store_block(result, acc, m, n, columns):
    """Stores a block of the product, with bias."""
    acc += tl.load(result.bias + n, mask=(n < columns) & result.has_bias, other=0.0).to(tl.float32)[None, :]
    inside = (m < result.rows)[:, None] & (n < columns)[None, :]
    out = result.out + m[:, None].to(tl.int64) * columns + n[None, :]
    tl.store(out, acc.to(result.out.dtype.element_ty), mask=inside)


@kp.jit
def quantized_blocks_kernel(
    x, weight, result, CODES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCKS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """A block of the product: elements of the weight are computed as they are needed, in x's dtype, or WIDE: in float32."""
    BITS: tl.constexpr = 4 if CODES == 4 else 8
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    begin = tl.program_id(1) * BLOCK_N
    n = begin + tl.arange(0, BLOCK_N)
    k = tl.arange(0, 32 * BLOCKS)
    rows = x + m[:, None].to(tl.int64) * (weight.blocks * 32) + k[None, :]
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for block in range(0, weight.blocks, BLOCKS):
        inside = (m < result.rows)[:, None] & (block * 32 + k < weight.blocks * 32)[None, :]
        tile = tl.load(rows + block * 32, mask=inside, other=0.0)
        tile = tile.to(tl.float32) if WIDE else tile
        elements = weight_of(weight, block, begin, tile.dtype, BITS, CODES == 16, BLOCKS, BLOCK_N)
        acc = tl.dot(tile, elements, acc, input_precision="ieee")
    store_block(result, acc, m, n, weight.columns)
