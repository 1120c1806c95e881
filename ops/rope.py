"""rope: rotary position embedding, each pair of elements turned by its position's angle."""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl

from ._rows import DTYPES, check_rows

RANGES = {"dtypes": ("float32", "float16", "bfloat16"), "head_size": (1, 2**31 - 1), "ranks": (4,)}


class Strides(NamedTuple):
    """Strides in elements along batches, heads and positions."""

    batch: tl.int64
    head: tl.int64
    position: tl.int64


class Sizes(NamedTuple):
    """Sizes of x, how many pairs are turned, and how many positions a program takes, one after the other."""

    heads: int
    positions: int
    head_size: int
    pairs: int
    per_program: int


@kp.jit
def turn(
    x, cos, sin, out, head, position, strides, sizes,
    INTERLEAVED: tl.constexpr, HEADS: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Turns HEADS heads from `head` on, at the positions [TILE], by angles that they share. Angles are tiles of another shape than
    pairs: each is loaded in vectors of its own width."""
    head = head + tl.arange(0, HEADS)[:, None, None]
    pairs, head_size = sizes.pairs, sizes.head_size
    here = (position[None, :, None] < sizes.positions) & (head < sizes.heads)
    source = x + head * strides.head + position[None, :, None] * strides.position
    target = out + (head * sizes.positions + position[None, :, None]) * head_size
    for begin in range(0, pairs, BLOCK):
        column = begin + tl.arange(0, BLOCK)[None, :]
        known = (column < pairs) & (position[:, None] < sizes.positions)
        c = tl.load(cos + column, mask=known).to(tl.float32)[None]
        s = tl.load(sin + column, mask=known).to(tl.float32)[None]
        index = column[None]
        inside = (index < pairs) & here
        if INTERLEAVED:
            both = 2 * begin + tl.arange(0, 2 * BLOCK)[None, None, :]
            all_inside = (both < 2 * pairs) & here
            pair = tl.reshape(tl.load(source + both, mask=all_inside).to(tl.float32), [HEADS, TILE, BLOCK, 2])
            a, b = tl.split(pair)
            tl.store(target + both, tl.interleave(a * c - b * s, b * c + a * s), mask=all_inside)
        else:
            a = tl.load(source + index, mask=inside).to(tl.float32)
            b = tl.load(source + pairs + index, mask=inside).to(tl.float32)
            tl.store(target + index, a * c - b * s, mask=inside)
            tl.store(target + pairs + index, b * c + a * s, mask=inside)
    for begin in range(2 * pairs, head_size, BLOCK):
        index = begin + tl.arange(0, BLOCK)[None, None, :]
        inside = (index < head_size) & here
        tl.store(target + index, tl.load(source + index, mask=inside), mask=inside)


@kp.jit
def turn_position(source, cos, sin, target, sizes, INTERLEAVED: tl.constexpr, BLOCK: tl.constexpr):
    """Turns one head at one position: the elements from `source` on, by the angles of `cos` and `sin`, one for each pair."""
    pairs, head_size = sizes.pairs, sizes.head_size
    for begin in range(0, pairs, BLOCK):
        index = begin + tl.arange(0, BLOCK)
        inside = index < pairs
        c = tl.load(cos + index, mask=inside).to(tl.float32)
        s = tl.load(sin + index, mask=inside).to(tl.float32)
        if INTERLEAVED:
            left, right = 2 * index, 2 * index + 1
        else:
            left, right = index, index + pairs
        a = tl.load(source + left, mask=inside).to(tl.float32)
        b = tl.load(source + right, mask=inside).to(tl.float32)
        tl.store(target + left, a * c - b * s, mask=inside)
        tl.store(target + right, b * c + a * s, mask=inside)
    for begin in range(2 * pairs, head_size, BLOCK):
        index = begin + tl.arange(0, BLOCK)
        inside = index < head_size
        tl.store(target + index, tl.load(source + index, mask=inside), mask=inside)


@kp.jit
def rope_kernel(
    x, cos, sin, out, x_strides, cos_strides, sin_strides, sizes, ahead,
    INTERLEAVED: tl.constexpr, HEADS: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Turns HEADS heads at TILE positions at once or, where TILE is 0, one head at a program's positions one after the other. Half of the
    heads are turned `ahead` positions further on, which makes no difference but to memory.

    A pair is (x[i], x[i + pairs]), or (x[2i], x[2i + 1]) where INTERLEAVED.
    """
    heads, positions = sizes.heads, sizes.positions
    blocks = tl.cdiv(positions, TILE if TILE else sizes.per_program)
    if TILE:  # all heads of some positions at the same time: they lie beside each other, and share angles
        groups = tl.cdiv(heads, HEADS)
        group, tile = tl.program_id(0) % groups, tl.program_id(0) // groups % blocks
        if 2 * group >= groups:
            tile = (tile + ahead // TILE) % blocks
        head = group.to(tl.int64) * HEADS
        batch = (tl.program_id(0) // groups // blocks).to(tl.int64)
        position = tile.to(tl.int64) * TILE + tl.arange(0, TILE)
        x += batch * x_strides.batch
        out += batch * heads * positions * sizes.head_size
        cos += batch * cos_strides.batch + position[:, None] * cos_strides.position
        sin += batch * sin_strides.batch + position[:, None] * sin_strides.position
        if HEADS == 1 or (cos_strides.head == 0 and sin_strides.head == 0):
            cos += head * cos_strides.head
            sin += head * sin_strides.head
            turn(x, cos, sin, out, head, position, x_strides, sizes, INTERLEAVED, HEADS, TILE, BLOCK)
        else:
            for own in range(head, tl.minimum(head + HEADS, heads)):
                own_cos, own_sin = cos + own * cos_strides.head, sin + own * sin_strides.head
                turn(x, own_cos, own_sin, out, own, position, x_strides, sizes, INTERLEAVED, 1, TILE, BLOCK)
    else:
        row = (tl.program_id(0) // blocks).to(tl.int64)
        first = (tl.program_id(0) % blocks).to(tl.int64) * sizes.per_program
        batch, head = row // heads, row % heads
        for position in range(first, tl.minimum(first + sizes.per_program, positions)):
            source = x + batch * x_strides.batch + head * x_strides.head + position * x_strides.position
            target = out + (row * positions + position) * sizes.head_size
            cos_row = cos + batch * cos_strides.batch + head * cos_strides.head + position * cos_strides.position
            sin_row = sin + batch * sin_strides.batch + head * sin_strides.head + position * sin_strides.position
            turn_position(source, cos_row, sin_row, target, sizes, INTERLEAVED, BLOCK)


def config(point):
    if point.target.backend == "cpu":
        return kp.Config({"HEADS": 1, "TILE": 0, "BLOCK": 32})
    if point["x"] == tl.float32 or point["INTERLEAVED"]:
        return kp.Config({"HEADS": 1, "TILE": 16, "BLOCK": 64}, num_warps=8)
    # angles may be wider than x, and then are more than a tile of x: two heads share them
    return kp.Config({"HEADS": 2, "TILE": 8, "BLOCK": 64}, num_warps=4)


@kp.op(
    "rope(Tensor x, Tensor cos, Tensor sin, *, bool interleaved=False) -> Tensor",
    variants={
        "x": DTYPES,
        "cos": [tl.float32, kp.same_as("x")],
        "sin": kp.same_as("cos"),
        "INTERLEAVED": [False, True],
    },
    configs={"": config},
    specialize=[kp.aligned(inner=8)],
)
def rope(x, cos, sin, interleaved):
    """Turns the pairs of x [batch, heads, positions, head size] by angles whose `cos` and `sin` are given.

    cos and sin broadcast to [batch, heads, positions, pairs], in float32 or x's dtype. The first 2 * pairs elements are
    turned, in pairs (i, i + pairs) or, where `interleaved`, (2i, 2i + 1); the others are copied. For [batch, positions,
    heads, head size] pass x.transpose(1, 2): strides are free but for the last dimension.
    """
    batches, heads, positions, head_size = x.shape
    check_rows(x, "x")
    check_rows(cos, "cos")
    check_rows(sin, "sin")
    pairs = cos.shape[-1]
    kp.check(cos.shape == sin.shape, f"sin has shape {sin.shape}, cos has {cos.shape}")
    kp.check(
        2 * pairs <= head_size,
        f"cos has {pairs} columns, expected one for each pair: at most half of x's head size, which is {head_size}",
    )
    out = kp.empty_like(x)
    angles = (batches, heads, positions, pairs)
    cos0, cos1, cos2, _ = kp.broadcast_strides(cos, angles)
    sin0, sin1, sin2, _ = kp.broadcast_strides(sin, angles)
    per_program = 1 if x.is_cuda else max(1, 4096 // max(head_size, 1))
    # results of many heads that begin at the same place of pages of 2 MB are slow to write side by side (an H100)
    side_by_side = heads >= 256 and positions * head_size * x.element_size() % (2 << 20) == 0
    rope_kernel[lambda meta: (kp.cdiv(positions, max(meta["TILE"], per_program)) * batches * kp.cdiv(heads, meta["HEADS"]),)](
        x, cos, sin, out,
        Strides(x.stride(0), x.stride(1), x.stride(2)), Strides(cos0, cos1, cos2), Strides(sin0, sin1, sin2),
        Sizes(heads, positions, head_size, pairs, per_program), positions // 2 if side_by_side else 0, INTERLEAVED=interleaved,
    )  # fmt: skip
    return out


def reference(x, cos, sin, interleaved=False):
    """The same with torch, in any float dtype."""
    import torch  # builds do without it

    pairs = cos.shape[-1]
    turned, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
        return torch.cat((torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2), rest), -1)
    a, b = turned[..., :pairs], turned[..., pairs:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), -1)
