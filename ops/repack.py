"""repack: quantised weights as files have them (GGUF, AWQ, GPTQ, int8), in the one layout that quantized_matmul reads."""

import enum
from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl

from ._quantized_weights import TILE, in_tiles, pack
from ._rows import check_whole

RANGES = {
    "dtypes": ("uint8", "int32", "int8"),
    "format": ("Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K", "AWQ", "GPTQ", "GPTQ v2", "int8"),
}


class Format(enum.IntEnum):
    """How a weight is quantised and stored. Numbers below 100 are ggml's own (ggml.h, ggml_type)."""

    Q4_0 = 2
    Q4_1 = 3
    Q8_0 = 8
    Q4_K = 12
    Q6_K = 14
    AWQ = 100
    GPTQ = 101
    GPTQ_V2 = 102
    INT8 = 103


class Source(NamedTuple):
    """A weight [N, K] as its file has it: its words or bytes, what stands beside them (None in GGUF), and what is added to zeros."""

    weight: tl.tensor
    scales: tl.tensor
    zeros: tl.tensor
    plus: int


class Sizes(NamedTuple):
    """N, K / 32, K / group, how many elements of K share a scale, how many bytes or words lie from one row of the weight to the next."""

    columns: int
    blocks: int
    groups: int
    group: int
    row: tl.int64


@kp.jit
def word_at(pointers, inside):
    """Returns four bytes as a word, the first one lowest."""
    word = tl.zeros(inside.shape, tl.int32)
    for byte in tl.static_range(4):
        word |= (tl.load(pointers + byte, mask=inside, other=0).to(tl.int32) & 255) << 8 * byte
    return word


@kp.jit
def half_at(pointers, inside):
    """Returns two bytes, the first one lower, as a float16."""
    low, high = tl.load(pointers, mask=inside, other=0), tl.load(pointers + 1, mask=inside, other=0)
    return (low.to(tl.int16) | (high.to(tl.int16) << 8)).to(tl.float16, bitcast=True)


@kp.jit
def nibbles(low, high, shift):
    """Returns words of 4-bit codes out of bytes that hold codes of k, and of k + 16: the half of each byte that begins at bit `shift`."""
    return ((low >> shift) & 0x0F0F0F0F) | (((high >> shift) & 0x0F0F0F0F) << 4)


@kp.jit
def spread(codes):
    """Returns words of a code a byte out of 16 bits of four codes."""
    pairs = (codes | (codes << 8)) & 0x00FF00FF
    return (pairs | (pairs << 4)) & 0x0F0F0F0F


@kp.jit
def awq_place(column):
    """Returns at which bit of a word lies the code of a column: a word has those of 0 2 4 6 1 3 5 7 (AutoAWQ, packing_utils.py)."""
    return ((column % 8) // 2 + column % 2 * 4) * 4


@kp.jit
def words_of_k(row, block, i, inside, FORMAT: tl.constexpr):
    """Returns word i of a block of 32 of Q4_K or Q6_K; `row` is where a row's bytes begin. 256 elements are stored together: Q4_K has 16
    bytes of scales and then codes, of 64 elements side by side a byte; Q6_K has the lower 4 bits of all codes, then the upper 2."""
    part = block % 8
    if FORMAT == Format.Q4_K:
        at = row + block // 8 * 144 + 16 + part // 2 * 32 + 4 * i
        return nibbles(word_at(at, inside), word_at(at + 16, inside), part % 2 * 4)
    at = row + block // 8 * 210 + 4 * i
    low = word_at(at + part // 4 * 64 + part % 2 * 32, inside) >> part // 2 % 2 * 4
    high = word_at(at + 128 + part // 4 * 32, inside) >> part % 4 * 2
    codes = (low & 0x0F0F0F0F) | ((high & 0x03030303) << 4)
    return ((codes | -0x7F7F7F80) - 0x20202020) ^ -0x7F7F7F80  # each byte less 32: its highest bit, set, keeps what is borrowed


@kp.jit
def words_of(source, sizes, block, i, column, inside, FORMAT: tl.constexpr):
    """Returns words [WORDS, COLUMNS] of a block of 32: word `i` [WORDS, 1] of each `column` [1, COLUMNS]."""
    if FORMAT == Format.AWQ:
        word = tl.zeros(inside.shape, tl.int32)
        for half in tl.static_range(2):
            for byte in tl.static_range(4):
                at = (32 * block + 16 * half + 4 * i + byte) * sizes.row + column // 8
                code = (tl.load(source.weight + at, mask=inside, other=0) >> awq_place(column)) & 15
                word |= code << (8 * byte + 4 * half)
        return word
    if FORMAT == Format.GPTQ:
        at = source.weight + (4 * block + i // 2) * sizes.row + column
        low = (tl.load(at, mask=inside, other=0) >> i % 2 * 16) & 0xFFFF
        high = (tl.load(at + 2 * sizes.row, mask=inside, other=0) >> i % 2 * 16) & 0xFFFF
        return nibbles(spread(low), spread(high), 0)
    row = source.weight + column * sizes.row
    if FORMAT == Format.Q4_K or FORMAT == Format.Q6_K:
        return words_of_k(row, block, i, inside, FORMAT)
    if FORMAT == Format.Q4_0:
        return word_at(row + block * 18 + 2 + 4 * i, inside)
    if FORMAT == Format.Q4_1:
        return word_at(row + block * 20 + 4 + 4 * i, inside)
    if FORMAT == Format.Q8_0:
        return word_at(row + block * 34 + 2 + 4 * i, inside)
    return word_at(row + block * 32 + 4 * i, inside)


@kp.jit
def store_scales(source, sizes, scales, mins, block, column, target, inside, FORMAT: tl.constexpr):
    """Stores the scale and, where there is one, the min of each `column` for the group that begins with a block of 32, and zeros after the
    last column; `target` is where the first group's lie. Q6_K has two groups in a block."""
    target += block * 32 // sizes.group * TILE
    row = source.weight + column * sizes.row
    if FORMAT == Format.AWQ or FORMAT == Format.GPTQ:
        width = sizes.columns // 8
        beside = block * 32 // sizes.group * sizes.columns + column
        scale = tl.load(source.scales + beside, mask=inside, other=0.0).to(tl.float32)
        place = awq_place(column) if FORMAT == Format.AWQ else column % 8 * 4
        at = source.zeros + block * 32 // sizes.group * width + column // 8
        zero = ((tl.load(at, mask=inside, other=0) >> place) + source.plus) & 15
        tl.store(scales + target, scale)
        tl.store(mins + target, tl.where(inside, (0 - zero).to(tl.float32) * scale, 0.0))
    elif FORMAT == Format.INT8:
        tl.store(scales + target, tl.load(source.scales + column, mask=inside, other=0.0))
    elif FORMAT == Format.Q4_K:
        at = row + block // 8 * 144
        part = block % 8
        # bytes 4 ... 15: 6 bits of 4 scales, 6 of 4 mins, then 4 and 4 bits of 4 scales and mins, whose upper 2 lie above the first 8
        own, next, last = part % 4, 4 + part % 4, 8 + part % 4
        first = tl.load(at + 4 + own, mask=inside, other=0).to(tl.int32)
        second = tl.load(at + 4 + next, mask=inside, other=0).to(tl.int32)
        third = tl.load(at + 4 + last, mask=inside, other=0).to(tl.int32)
        scale = tl.where(part < 4, first & 63, (third & 15) | (first >> 6 << 4))
        least = tl.where(part < 4, second & 63, (third >> 4) | (second >> 6 << 4))
        tl.store(scales + target, half_at(at, inside).to(tl.float32) * scale.to(tl.float32))
        tl.store(mins + target, half_at(at + 2, inside).to(tl.float32) * (0 - least).to(tl.float32))
    elif FORMAT == Format.Q6_K:
        at = row + block // 8 * 210
        common = half_at(at + 208, inside).to(tl.float32)
        for half in tl.static_range(2):
            step = tl.load(at + 192 + block % 8 * 2 + half, mask=inside, other=0).to(tl.int8, bitcast=True)
            tl.store(scales + target + half * TILE, common * step.to(tl.float32))
    elif FORMAT == Format.Q4_1:
        tl.store(scales + target, half_at(row + block * 20, inside))
        tl.store(mins + target, half_at(row + block * 20 + 2, inside))
    else:
        tl.store(scales + target, half_at(row + block * (18 if FORMAT == Format.Q4_0 else 34), inside))


@kp.jit
def repack_kernel(
    source, codes, scales, mins, sizes, WORDS: tl.constexpr, FORMAT: tl.constexpr, COLUMNS: tl.constexpr, BLOCKS: tl.constexpr
):  # fmt: skip
    """Takes COLUMNS columns of up to BLOCKS blocks of 32. The last tile of columns ends in zeros."""
    tiles = tl.cdiv(sizes.columns, TILE)
    groups = tiles * (TILE // COLUMNS)
    begin = tl.program_id(0) % groups * COLUMNS
    column = begin + tl.arange(0, COLUMNS)[None, :].to(tl.int64)
    tile, lane = (begin // TILE).to(tl.int64), begin % TILE + tl.arange(0, COLUMNS)[None, :]
    target = codes + tile * sizes.blocks * WORDS * TILE + lane
    scales_target = tile * sizes.groups * TILE + lane
    i = tl.arange(0, WORDS)[:, None].to(tl.int64)
    inside = column < sizes.columns
    whole = tl.broadcast_to(inside, [WORDS, COLUMNS])
    first = (tl.program_id(0) // groups).to(tl.int64) * BLOCKS
    for block in range(first, tl.minimum(first + BLOCKS, sizes.blocks)):
        word = words_of(source, sizes, block, i, column, whole, FORMAT)
        tl.store(target + (block * WORDS + i) * TILE, tl.where(whole, word, 0))
        if block * 32 % sizes.group == 0 or FORMAT == Format.Q6_K:
            store_scales(source, sizes, scales, mins, block, column, scales_target, inside, FORMAT)


WITH_HALVES = (Format.Q4_0, Format.Q4_1, Format.Q8_0)
"""Formats of GGUF whose scales stay float16; those of all others are float32, which holds them exactly."""
IN_BLOCKS_OF_256 = (Format.Q4_K, Format.Q6_K)
IN_WORDS = (Format.AWQ, Format.GPTQ)
"""Formats whose zeros lie beside them; GPTQ_V2 is GPTQ whose zeros are not one too small."""


def config(point):
    """Each launch names its format in its own way: so no kernel is built for a format with the dtype of another. Of arguments that are
    aligned nothing would be faster: most are bytes."""
    format = point.get("HALVES") or point.get("LARGE") or point.get("SHARED") or Format.INT8
    words = 8 if format in (Format.Q8_0, Format.Q6_K, Format.INT8) else 4
    if point.target.backend == "cpu":
        return kp.Config({"FORMAT": int(format), "WORDS": words, "COLUMNS": 16, "BLOCKS": 64}, specialize=False)
    return kp.Config({"FORMAT": int(format), "WORDS": words, "COLUMNS": 64, "BLOCKS": 8}, num_warps=4, specialize=False)


def inner_of(weight, format):
    """Returns K of a weight, in a host function, which also checks that it is blocks of 32 or, of Q4_K and Q6_K, of 256."""
    size, held = 32, 32  # of a block, along the dimension of weight that holds K: bytes or rows, and elements
    if format == Format.Q4_0:
        size = 18
    elif format == Format.Q4_1:
        size = 20
    elif format == Format.Q8_0:
        size = 34
    elif format == Format.Q4_K:
        size, held = 144, 256
    elif format == Format.Q6_K:
        size, held = 210, 256
    elif format == Format.GPTQ or format == Format.GPTQ_V2:
        size = 4
    given = weight.shape[0] if format >= Format.AWQ and format <= Format.GPTQ_V2 else weight.shape[1]
    kp.check(
        given % size == 0,
        f"weight has shape {weight.shape}, in format {format} the dimension that holds K must be a multiple of {size}",
    )
    return given // size * held


def bits_of(format):
    """Returns the bits of a code, in a host function."""
    return 8 if format == Format.Q8_0 or format == Format.Q6_K or format == Format.INT8 else 4


def columns_of(weight, format):
    """Returns N of a weight, in a host function."""
    by_column = format == Format.GPTQ or format == Format.GPTQ_V2
    return 8 * weight.shape[1] if format == Format.AWQ else weight.shape[1] if by_column else weight.shape[0]


def check_beside(scales, zeros, columns, inner):
    """A host function's check of what stands beside AWQ's and GPTQ's words. Returns the number of groups."""
    check_whole(scales, "scales")
    check_whole(zeros, "zeros")
    kp.check(
        scales.dim() == 2 and scales.shape[1] == columns,
        f"scales has shape {scales.shape}, expected a row of {columns} for each group",
    )
    groups = scales.shape[0]
    group = inner // max(groups, 1)
    kp.check(
        groups * group == inner and group % 32 == 0 and groups <= inner,
        f"scales has {groups} rows, expected one for each group of a K of {inner}: groups are multiples of 32",
    )
    kp.check(columns % 8 == 0, f"weight has {columns} columns, expected a multiple of 8")
    kp.check(
        zeros.dim() == 2 and zeros.shape[0] == groups and zeros.shape[1] == columns // 8,
        f"zeros has shape {zeros.shape}, expected ({groups}, {columns // 8}): rows as scales has, and 8 columns a word",
    )
    return groups


@kp.op(
    "repack(Tensor weight, int format, Tensor? scales=None, Tensor? zeros=None) -> (Tensor codes, Tensor scales, Tensor mins)",
    variants={
        "weight": [tl.uint8, tl.int32, tl.int8],
        "scales": [None, tl.float16, tl.float32],
        "zeros": [None, tl.int32],
        "HALVES": WITH_HALVES,
        "LARGE": IN_BLOCKS_OF_256,
        "SHARED": IN_WORDS,
    },
    configs={"": config},
)
def repack(weight, format, scales, zeros):
    """Returns a quantised weight W [N, K] in the layout of quantized_matmul: codes [N / 64, K / 32, bits, 64], scales [N / 64, K / group, 64]
    and mins of their shape or [N / 64, 0, 64], with which W is scales * codes + mins (ops/_quantized_weights.py). All bits are kept: nothing is rounded.

    | format | weight | scales | zeros | gives |
    | - | - | - | - | - |
    | 2 Q4_0, 3 Q4_1, 8 Q8_0 | uint8 [N, bytes of a row], as GGUF has it | | | 4, 4, 8 bits; float16 scales; groups of 32 |
    | 12 Q4_K, 14 Q6_K | the same; K a multiple of 256 | | | 4, 8 bits; float32 scales; groups of 32, 16 |
    | 100 AWQ | int32 [K, N / 8], as AutoAWQ has it | [K / group, N] | int32 [K / group, N / 8] | 4 bits; float32 scales |
    | 101 GPTQ, 102 GPTQ v2 | int32 [K / 8, N], as AutoGPTQ has it | [K / group, N] | int32 [K / group, N / 8] | 4 bits; float32 scales |
    | 103 int8 | int8 [N, K] | float32 [N] | | 8 bits; float32 scales [N / 64, 1, 64] |

    K is a multiple of 32, and so is group. Scales of AWQ and GPTQ are float16 or float32. GPTQ's zeros are stored less one, a stored 15 is
    0; v2's are not. Weights whose rows GPTQ has sorted (act-order: a g_idx that does not ascend) have no such groups: a caller that has
    one must refuse it, this op does not see it. All tensors are contiguous. Q4_1, Q4_K, AWQ and GPTQ have mins.

    The formats are ggml's (ggml-common.h, ggml-quants.c), AutoAWQ's (awq/utils/packing_utils.py) and AutoGPTQ's (qlinear_cuda.py).
    """
    half = format == Format.Q4_0 or format == Format.Q4_1 or format == Format.Q8_0
    gguf = half or format == Format.Q4_K or format == Format.Q6_K
    shared = format == Format.AWQ or format == Format.GPTQ or format == Format.GPTQ_V2
    kp.check(
        gguf or shared or format == Format.INT8,
        f"format is {format}, expected 2 (Q4_0), 3 (Q4_1), 8 (Q8_0), 12 (Q4_K), 14 (Q6_K), 100 (AWQ), 101 (GPTQ), 102 (GPTQ v2) or 103 "
        f"(int8)",
    )
    kp.check(weight.dim() == 2, f"weight must have 2 dimensions, it has shape {weight.shape}")
    check_whole(weight, "weight")
    kp.check(weight.dtype == tl.uint8 or not gguf, f"weight is not uint8, as format {format} is stored")
    kp.check(weight.dtype == tl.int32 or not shared, f"weight is not int32, as format {format} is stored")
    kp.check(weight.dtype == tl.int8 or format != Format.INT8, f"weight is not int8, as format {format} is stored")
    inner = inner_of(weight, format)
    blocks = inner // 32
    columns = columns_of(weight, format)
    tiles = kp.cdiv(columns, 64)
    codes = kp.empty((tiles, blocks, bits_of(format), 64), tl.int32, weight.device)
    if weight.dtype == tl.uint8:
        kp.check(scales is None, f"scales is given, but weights of format {format} hold their own")
        kp.check(zeros is None, f"zeros is given, but weights of format {format} hold their own")
        groups = inner // 16 if format == Format.Q6_K else blocks
        least = groups if format == Format.Q4_1 or format == Format.Q4_K else 0
        sizes = Sizes(columns, blocks, groups, 16 if format == Format.Q6_K else 32, weight.shape[1])
        if half:
            factors = kp.empty((tiles, groups, 64), tl.float16, weight.device)
            mins = kp.empty((tiles, least, 64), tl.float16, weight.device)
            repack_kernel[lambda meta: (kp.cdiv(tiles * 64, meta["COLUMNS"]) * kp.cdiv(blocks, meta["BLOCKS"]),)](
                Source(weight, None, None, 0), codes, factors, mins, sizes, HALVES=format
            )
        else:
            factors = kp.empty((tiles, groups, 64), tl.float32, weight.device)
            mins = kp.empty((tiles, least, 64), tl.float32, weight.device)
            repack_kernel[lambda meta: (kp.cdiv(tiles * 64, meta["COLUMNS"]) * kp.cdiv(blocks, meta["BLOCKS"]),)](
                Source(weight, None, None, 0), codes, factors, mins, sizes, LARGE=format
            )
    elif weight.dtype == tl.int32:
        kp.check(scales is not None, f"scales is None, format {format} needs it")
        kp.check(zeros is not None, f"zeros is None, format {format} needs it")
        groups = check_beside(scales, zeros, columns, inner)
        factors = kp.empty((tiles, groups, 64), tl.float32, weight.device)
        mins = kp.empty((tiles, groups, 64), tl.float32, weight.device)
        repack_kernel[lambda meta: (kp.cdiv(tiles * 64, meta["COLUMNS"]) * kp.cdiv(blocks, meta["BLOCKS"]),)](
            Source(weight, scales, zeros, 1 if format == Format.GPTQ else 0), codes, factors, mins,
            Sizes(columns, blocks, groups, inner // max(groups, 1), weight.shape[1]),
            SHARED=Format.AWQ if format == Format.AWQ else Format.GPTQ,
        )  # fmt: skip
    else:
        kp.check(scales is not None, f"scales is None, format {format} needs it")
        kp.check(zeros is None, f"zeros is given, but format {format} has none")
        kp.check(scales.dtype == tl.float32, "scales is float16, expected float32 beside int8")
        kp.check(
            scales.dim() == 1 and scales.shape[0] == columns,
            f"scales has shape {scales.shape}, expected ({columns},): one a row",
        )
        check_whole(scales, "scales")
        factors = kp.empty((tiles, min(inner, 1), 64), tl.float32, weight.device)
        mins = kp.empty((tiles, 0, 64), tl.float32, weight.device)
        repack_kernel[lambda meta: (kp.cdiv(tiles * 64, meta["COLUMNS"]) * kp.cdiv(blocks, meta["BLOCKS"]),)](
            Source(weight, scales, None, 0), codes, factors, mins, Sizes(columns, blocks, min(inner, 1), inner, inner)
        )
    return codes, factors, mins


def halves_of(bytes):
    """Returns bytes [..., 2 n] as float16 [..., n], with torch."""
    import torch  # builds do without it

    return bytes.contiguous().view(torch.float16)


def ggml_parts(weight, format):
    """Returns codes [N, K], scales [N, K / group] and mins, or None, of a weight of GGUF, with torch, as ggml-quants.c reads them."""
    import torch  # builds do without it

    size = {Format.Q4_0: 18, Format.Q4_1: 20, Format.Q8_0: 34, Format.Q4_K: 144, Format.Q6_K: 210}[format]
    rows, blocks = weight.shape[0], weight.shape[1] // size
    data = weight.reshape(rows, blocks, size)
    if format == Format.Q8_0:
        return data[..., 2:].contiguous().view(torch.int8).flatten(1), halves_of(data[..., :2]).flatten(1), None
    if format in WITH_HALVES:
        codes, factors = data[..., -16:], halves_of(data[..., :-16])
        codes = torch.cat((codes & 15, codes >> 4), -1)
        return codes.flatten(1), factors[..., 0], factors[..., 1] if format == Format.Q4_1 else None
    if format == Format.Q4_K:
        common, bits, codes = halves_of(data[..., :4]).float(), data[..., 4:16], data[..., 16:].unflatten(-1, (4, 32))
        low, middle, high = bits.split(4, -1)
        steps = torch.cat((low & 63, (high & 15) | (low >> 6 << 4)), -1)
        least = torch.cat((middle & 63, (high >> 4) | (middle >> 6 << 4)), -1)
        codes = torch.stack((codes & 15, codes >> 4), -2)
        return codes.flatten(1), (common[..., :1] * steps).flatten(1), (common[..., 1:] * -least.int()).flatten(1)
    lower, upper = data[..., :128].unflatten(-1, (2, 1, 64)), data[..., 128:192].unflatten(-1, (2, 1, 32))
    shifts = torch.arange(0, 8, 2, dtype=torch.uint8, device=weight.device)[:, None]
    codes = torch.cat((lower & 15, lower >> 4), -2).flatten(-2) | (((upper >> shifts) & 3) << 4).flatten(-2)
    steps = data[..., 192:208].contiguous().view(torch.int8)
    return codes.flatten(1).int() - 32, (halves_of(data[..., 208:]).float() * steps).flatten(1), None


def unpacked(words, places):
    """Returns what lies at bits `places` of words [m, n], 4 bits each: [m, n, len(places)], with torch."""
    import torch  # builds do without it

    return (words[..., None] >> torch.tensor(places, dtype=torch.int32, device=words.device)) & 15


def reference(weight, format, scales=None, zeros=None):
    """The same with torch."""

    if format == Format.INT8:
        return pack(weight, 8), in_tiles(scales[None][: weight.shape[1]]), in_tiles(scales.new_empty(0, weight.shape[0]))
    if format in (Format.AWQ, Format.GPTQ, Format.GPTQ_V2):
        ascending = list(range(0, 32, 4))
        places = [0, 16, 4, 20, 8, 24, 12, 28] if format == Format.AWQ else ascending
        codes = unpacked(weight, places).flatten(1).T if format == Format.AWQ else unpacked(weight.T, places).flatten(1)
        zero = (unpacked(zeros, places).flatten(1) + (format == Format.GPTQ)) & 15
        return pack(codes, 4), in_tiles(scales.float()), in_tiles(-zero * scales.float())
    codes, factors, mins = ggml_parts(weight, format)
    none = factors.new_empty(0, weight.shape[0])
    bits = 8 if format in (Format.Q8_0, Format.Q6_K) else 4
    return pack(codes, bits), in_tiles(factors.T), in_tiles(none if mins is None else mins.T)
