"""Which blocks TMA can copy, and in which pieces: how they lie in shared memory, and the boxes that fill them.

One copy moves a box: at most 256 elements along each axis, and no more bytes of the last one than the swizzle's row (CUDA
driver API, cuTensorMapEncodeTiled).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from kernelpack.ir.dialects.descriptors import squeezed
from kernelpack.ir.types import TensorType, bit_width
from kernelpack.layout.encoding import SharedEncoding, tma_encoding
from kernelpack.layout.families import swizzle_of

MAX_BOX = 256
"""The largest box along an axis."""
PATTERN_ROWS = 8
"""The rows after which a swizzle's pattern repeats, which is by address."""


@dataclass(frozen=True)
class Piece:
    """One copy: `start` are its first element's coordinates in the block, `offset` is where it lies in the buffer, in elements."""

    start: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Transfer:
    """How TMA moves a block: the buffer's layout, and boxes of one size."""

    encoding: SharedEncoding
    swizzle: int
    box: tuple[int, ...]
    pieces: tuple[Piece, ...]


@functools.lru_cache(maxsize=1024)
def transfer_of(block: TensorType) -> Transfer | None:
    """Returns how TMA moves a block of a tensor; None where it cannot. The encoding is that of the block without axes of size 1."""
    bits = bit_width(block.element)
    tile = squeezed(block.shape)
    if bits < 8 or not tile or tile[-1] * bits // 8 % 16:
        return None
    swizzle = swizzle_of(tile[-1] * bits // 8) if len(tile) > 1 else 0
    width = swizzle * 8 // bits if swizzle else tile[-1]
    if len(tile) > 1 and tile[-2] % PATTERN_ROWS and (width != tile[-1] or len(tile) > 2):
        swizzle, width = 0, tile[-1]  # the pattern would begin anew inside of the buffer
    one_panel = width == tile[-1]
    box = [min(extent, MAX_BOX) for extent in tile]
    box[-1] = min(width, MAX_BOX)
    if not one_panel:
        box[:-2] = [1] * len(box[:-2])
    pieces = tuple(
        Piece(_spread(block.shape, start), _offset(tile, width, start))
        for start in itertools.product(*(range(0, extent, step) for extent, step in zip(tile, box, strict=True)))
    )
    if not _runs(tile, width, box):
        return None
    return Transfer(tma_encoding(tile, bits, None, swizzle), swizzle, _spread(block.shape, box, 1), pieces)


def _spread(shape: Sequence[int], entries: Sequence[int], missing: int = 0) -> tuple[int, ...]:
    """Returns entries for the axes of more than one element, with `missing` for the others."""
    rest = iter(entries)
    return tuple(next(rest) if extent > 1 else missing for extent in shape)


def _offset(tile: Sequence[int], width: int, start: Sequence[int]) -> int:
    """Returns where an element lies that begins a row of a panel: panels of `width` elements behind each other, then outer axes."""
    if len(tile) == 1:
        return start[0]
    outer = 0
    for extent, at in zip(tile[:-2], start[:-2], strict=True):
        outer = outer * extent + at
    panel = outer * (tile[-1] // width) + start[-1] // width
    return (panel * tile[-2] + start[-2]) * width + start[-1] % width


def _runs(tile: Sequence[int], width: int, box: Sequence[int]) -> bool:
    """Whether every box is a run of bytes: no axis is cut inside of one that is not cut to single elements."""
    if len(tile) == 1:
        return True
    extents = (*tile[:-1], width)
    first = next((axis for axis, step in enumerate(box) if step > 1), len(box))
    return all(step == extent for step, extent in zip(box[first + 1 :], extents[first + 1 :], strict=True))
