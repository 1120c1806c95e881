"""The named families of layouts, as functions that return linear layouts: blocked, tensor-core fragments, swizzled memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernelpack.layout.linear import Basis, LinearLayout, log2

HARDWARE = ("register", "lane", "warp", "block")
"""The input dimensions of every layout of a tile in registers."""


@dataclass(frozen=True)
class Threads:
    """The threads that a tile is spread over: so many warps of so many lanes."""

    warps: int
    lanes: int

    @property
    def count(self) -> int:
        return self.warps * self.lanes


def dim(axis: int) -> str:
    """Returns the name of a tensor dimension."""
    return f"dim{axis}"


def dims(rank: int) -> tuple[str, ...]:
    return tuple(dim(axis) for axis in range(rank))


def _start(rank: int) -> LinearLayout:
    return LinearLayout(tuple((name, ()) for name in HARDWARE), tuple((dim(axis), 1) for axis in range(rank)))


def fit(layout: LinearLayout, shape: Sequence[int]) -> LinearLayout:
    """Returns the layout made to cover exactly `shape`.

    What a dimension lacks is added to the registers; where a layout is larger than the shape, the surplus lanes and warps hold
    copies and the surplus registers go. Triton's rule for tiles smaller or larger than their layout.
    """
    for axis, size in enumerate(shape):
        have = layout.shape[layout.out_names.index(dim(axis))]
        if have < size:
            layout = layout * LinearLayout.identity(size // have, "register", dim(axis))
    layout = layout.with_outs(dims(len(shape)))

    def clip(basis: Basis) -> Basis:
        return tuple(x if x < size else 0 for x, size in zip(basis, shape, strict=True))

    ins = tuple((name, tuple(map(clip, layout.bases(name)))) for name in HARDWARE)
    return without_copies(LinearLayout(ins, tuple((dim(axis), size) for axis, size in enumerate(shape))))


def without_copies(layout: LinearLayout) -> LinearLayout:
    """Returns the layout without registers that repeat another register's elements."""
    return layout.with_bases("register", [basis for basis in layout.bases("register") if any(basis)])


@functools.lru_cache(maxsize=4096)
def blocked(
    shape: tuple[int, ...],
    per_thread: tuple[int, ...],
    lanes: tuple[int, ...],
    warps: tuple[int, ...],
    order: tuple[int, ...],
) -> LinearLayout:
    """Returns the layout in which each thread holds a block of `per_thread` elements, a warp `lanes` such blocks, a CTA `warps`.

    `order` lists the dimensions from the fastest to the slowest.
    """
    layout = _start(len(shape))
    for name, counts in (("register", per_thread), ("lane", lanes), ("warp", warps)):
        for axis in order:
            layout = layout * LinearLayout.identity(counts[axis], name, dim(axis))
    return fit(layout, shape)


def spread(
    shape: tuple[int, ...], per_thread: int, order: tuple[int, ...], threads: Threads, keep: frozenset[int] = frozenset()
) -> LinearLayout:
    """Returns a blocked layout with `per_thread` contiguous elements along `order[0]`, its lanes along `order` and its warps
    along the slowest dimension first, so that a warp holds whole rows where it can. Warps avoid the dimensions in `keep`
    (those that reductions run along) as long as others have room.
    """
    rank = len(shape)
    per = [1] * rank
    per[order[0]] = min(per_thread, shape[order[0]])
    room = [size // count for size, count in zip(shape, per, strict=True)]
    lanes, warps = [1] * rank, [1] * rank
    left = threads.lanes
    for axis in order:
        lanes[axis] = min(left, room[axis])
        left //= lanes[axis]
        room[axis] //= lanes[axis]
    lanes[order[-1]] *= left  # more lanes than elements: copies
    left = threads.warps
    slow_first = order[::-1]
    for axis in sorted(slow_first, key=lambda axis: axis in keep):
        warps[axis] = min(left, room[axis])
        left //= warps[axis]
    warps[order[-1]] *= left
    return blocked(shape, tuple(per), tuple(lanes), tuple(warps), order)


@functools.lru_cache(maxsize=4096)
def scan(shape: tuple[int, ...], axis: int, threads: Threads) -> LinearLayout:
    """Returns the layout for a scan along `axis`: each thread holds consecutive elements, consecutive lanes continue them,
    then consecutive warps. Warps prefer other dimensions, where they need not wait for each other.
    """
    others = [other for other in reversed(range(len(shape))) if other != axis]
    lanes, warps, per = [1] * len(shape), [1] * len(shape), [1] * len(shape)
    lanes[axis] = min(threads.lanes, shape[axis])
    for other in others:
        lanes[other] = min(threads.lanes // math.prod(lanes), shape[other])
        warps[other] = min(threads.warps // math.prod(warps), shape[other] // lanes[other])
    warps[axis] = min(threads.warps // math.prod(warps), shape[axis] // lanes[axis])
    per[axis] = shape[axis] // (lanes[axis] * warps[axis])
    slowest = (axis, *others)[-1]
    lanes[slowest] *= threads.lanes // math.prod(lanes)  # more lanes or warps than elements: copies
    warps[slowest] *= threads.warps // math.prod(warps)
    return blocked(shape, tuple(per), tuple(lanes), tuple(warps), (axis, *others))


# ---- tensor cores: fragments of mma.sync, PTX ISA 9.7.15.5 ("Matrix fragments for mma.m16n8k*") ----


def _warps_over(layout: LinearLayout, warps: Sequence[int], rank: int, skip: int | None = None) -> LinearLayout:
    """Adds warps to a fragment of the last two dimensions: the last dimension fastest, batches slowest.

    Warps along `skip`, the summed dimension of an operand, hold copies.
    """
    for axis in reversed(range(rank)):
        if axis == skip:
            layout = layout * LinearLayout.zeros(warps[axis], "warp", dim(axis))
        else:
            layout = layout * LinearLayout.identity(warps[axis], "warp", dim(axis))
    return layout


@functools.lru_cache(maxsize=4096)
def mma_accumulator(shape: tuple[int, ...], warps: tuple[int, ...]) -> LinearLayout:
    """Returns the layout of C and D of mma.m16n8: [..., M, N], `warps` along each dimension."""
    rank = len(shape)
    m, n = dim(rank - 2), dim(rank - 1)
    tile = _start(rank)
    for source, size, target in (("register", 2, n), ("lane", 4, n), ("lane", 8, m), ("register", 2, m)):
        tile = tile * LinearLayout.identity(size, source, target)
    return fit(_warps_over(tile, warps, rank), shape)


@functools.lru_cache(maxsize=4096)
def mma_operand(shape: tuple[int, ...], index: int, bits: int, warps: tuple[int, ...], paired: bool = False) -> LinearLayout:
    """Returns the layout of A ([..., M, K], index 0) or B ([..., K, N], index 1) of mma.m16n8 for elements of `bits`.

    One 32-bit register holds 32 / bits elements along K; an instruction takes 8 such registers' worth of K.
    `warps` is the accumulator's. `paired`, of 32 bits: K is counted in another order, in which a thread holds neighbours, as it does
    of an accumulator.
    """
    rank = len(shape)
    k, other = (dim(rank - 1), dim(rank - 2)) if index == 0 else (dim(rank - 2), dim(rank - 1))
    steps = [("register", 2 if paired else 32 // bits, k), ("lane", 4, k), ("lane", 8, other)]
    if index == 0:
        steps.append(("register", 2, other))
    if not paired:
        steps.append(("register", 2, k))
    tile = _start(rank)
    for source, size, target in steps:
        tile = tile * LinearLayout.identity(size, source, target)
    skip = rank - 1 if index == 0 else rank - 2
    tile = _warps_over(tile, warps, rank, skip)
    # one ldmatrix then reads two neighbouring fragments of a k-step: the rows of A, the columns of B come before further k-steps
    have = tile.shape[tile.out_names.index(other)]
    wide = shape[rank - 2 if index == 0 else rank - 1]
    if wide > have:
        tile = tile * LinearLayout.identity(wide // have, "register", other)
    return fit(tile, shape)


# ---- warpgroups: fragments of wgmma, PTX ISA ("Register fragments for wgmma.mma_async") ----


def _over_warpgroups(fragment: LinearLayout, shape: tuple[int, int], warps: tuple[int, int], skip: int | None) -> LinearLayout:
    """Adds warps to a fragment of 16 rows: four along M make a warpgroup, then warpgroups along M, then along N."""
    layout = fragment * LinearLayout.identity(warps[0], "warp", dim(0))
    if skip is None:
        # each warpgroup has a range of columns of its own
        columns = shape[1] // warps[1]
        have = layout.shape[layout.out_names.index(dim(1))]
        layout = layout * LinearLayout.identity(max(1, columns // have), "register", dim(1))
        layout = layout * LinearLayout.identity(warps[1], "warp", dim(1))
    else:
        layout = layout * LinearLayout.zeros(warps[1], "warp", dim(1))
    return fit(layout, shape)


@functools.lru_cache(maxsize=4096)
def warpgroup_accumulator(shape: tuple[int, int], warps: tuple[int, int]) -> LinearLayout:
    """Returns the layout of C and D of wgmma, [M, N]: `warps` along M (a multiple of four) and along N.

    Register i of m64nN: row 16 warp + lane / 4 + 8 ((i / 2) % 2), column 8 (i / 4) + 2 (lane % 4) + i % 2.
    """
    tile = _start(2)
    for source, size, axis in (("register", 2, 1), ("lane", 4, 1), ("lane", 8, 0), ("register", 2, 0)):
        tile = tile * LinearLayout.identity(size, source, dim(axis))
    return _over_warpgroups(tile, shape, warps, None)


@functools.lru_cache(maxsize=4096)
def warpgroup_operand(shape: tuple[int, int], bits: int, warps: tuple[int, int]) -> LinearLayout:
    """Returns the layout of operand A of wgmma in registers, [M, K], elements of `bits`: `warps` is the accumulator's.

    A 32-bit register holds 32 / bits neighbours along K; four lanes lie along K, then two registers along M and two along K.
    16-bit elements lie as in an accumulator, so that a product feeds the next one without moving.
    """
    tile = _start(2)
    for source, size, axis in (
        ("register", 32 // bits, 1),
        ("lane", 4, 1),
        ("lane", 8, 0),
        ("register", 2, 0),
        ("register", 2, 1),
    ):
        tile = tile * LinearLayout.identity(size, source, dim(axis))
    return _over_warpgroups(tile, shape, warps, 1)


# ---- shared memory ----


@functools.lru_cache(maxsize=4096)
def swizzled(
    shape: tuple[int, ...], order: tuple[int, ...], vec: int = 1, per_phase: int = 1, max_phase: int = 1
) -> LinearLayout:
    """Returns the layout of a tile in memory, from `offset` (in elements) to the tile.

    Elements lie in `order` (fastest first). In row r, the chunks of `vec` elements are permuted by the exclusive or with
    (r / per_phase) % max_phase, which spreads a column over the banks. max_phase 1 is the plain layout.
    """
    rank = len(shape)
    fast = order[0]
    bases: list[Basis] = []
    for axis in order:
        for bit in range(log2(shape[axis])):
            basis = [0] * rank
            basis[axis] = 1 << bit
            if len(order) > 1 and axis == order[1]:
                basis[fast] = vec * ((1 << bit) // per_phase % max_phase) % shape[fast]
            bases.append(tuple(basis))
    return LinearLayout((("offset", tuple(bases)),), tuple((dim(axis), size) for axis, size in enumerate(shape)))


SWIZZLES = (128, 64, 32)
"""The row lengths in bytes that TMA and wgmma swizzle (PTX ISA, "Swizzling modes"), widest first."""
PATTERN_BYTES = 128
"""Every swizzle permutes the 16-byte chunks by the number of the 128-byte line that they lie in."""
CHUNK_BYTES = 16


def swizzle_of(row_bytes: int) -> int:
    """Returns the widest swizzle that divides a row of so many bytes; 0 where the row is too short for any."""
    return next((swizzle for swizzle in SWIZZLES if row_bytes % swizzle == 0), 0)


@functools.lru_cache(maxsize=4096)
def tma_tile(
    shape: tuple[int, ...], bits: int, order: tuple[int, ...] | None = None, swizzle: int | None = None
) -> LinearLayout:
    """Returns the layout of a tile in shared memory as TMA writes it and wgmma reads it, from `offset` (in elements) to the tile.

    The fastest dimension, `order[0]` (the last one if not given), is cut into panels of `swizzle` bytes, which lie after each
    other: a panel has all rows of `order[1]`, `swizzle` bytes each, with the 16-byte chunks of a row exchanged by the exclusive
    or with the number of its 128-byte line. `swizzle` is 128, 64, 32 or 0 (none: one panel), by default the widest that fits;
    one TMA box fills one panel. Further dimensions follow panel by panel. The tile's address must be a multiple of 8 lines.

    A tile [M, K] or [N, K] is a K-major operand of wgmma (B as its transpose), a tile [K, N] an MN-major one.
    """
    rank = len(shape)
    order = tuple(reversed(range(rank))) if order is None else order
    fast = order[0]
    row_bytes = shape[fast] * bits // 8
    if rank == 1:
        return swizzled(shape, order)
    swizzle = swizzle_of(row_bytes) if swizzle is None else swizzle
    if swizzle == 0:
        return swizzled(shape, order)
    if swizzle not in SWIZZLES or row_bytes % swizzle:
        raise ValueError(f"rows of {row_bytes} bytes are not made of swizzles of {swizzle} bytes ({SWIZZLES} are possible)")
    width = swizzle * 8 // bits
    panel = tuple(width if axis == fast else size if axis == order[1] else 1 for axis, size in enumerate(shape))
    tile = swizzled(panel, order, CHUNK_BYTES * 8 // bits, PATTERN_BYTES // swizzle, swizzle // CHUNK_BYTES)
    for axis in (fast, *order[2:]):
        tile = tile * LinearLayout.identity(shape[axis] // panel[axis], "offset", dim(axis))
    return tile
