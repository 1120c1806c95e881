"""Which blocks TMA can copy, and in which pieces: how they lie in shared memory, and the boxes that fill them.

One copy moves a box: at most 256 elements along each axis, and no more bytes of the last one than the swizzle's row (CUDA
driver API, cuTensorMapEncodeTiled).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernelpack.backends.gpu.facts.memory_layouts import memory_bits
from kernelpack.ir.core import Builder, Operation, Value
from kernelpack.ir.dialect import operand
from kernelpack.ir.dialects.descriptors import block_of, squeezed
from kernelpack.ir.types import I64, MemDescType, TensorType, Type, bit_width
from kernelpack.layout.encoding import LinearEncoding, SharedEncoding, layout_of, tma_encoding
from kernelpack.layout.families import swizzle_of, swizzled
from kernelpack.layout.transfer import reshape

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


def transfer_into(block: TensorType, shape: tuple[int, ...], row: int) -> Transfer | None:
    """Returns how TMA moves a block to the rows from `row` on of a buffer of a shape; None where it cannot.

    Blocks with as many columns as the buffer can have fewer rows, in whole patterns of the swizzle.
    """
    whole, tile = transfer_of(block), squeezed(block.shape)
    if whole is None or (shape == tile and row == 0):
        return whole
    if len(tile) != 2 or len(shape) != 2 or shape[1] != tile[1]:
        return None
    if row % PATTERN_ROWS or tile[0] % PATTERN_ROWS or not 0 <= row <= shape[0] - tile[0]:
        return None
    bits = bit_width(block.element)
    width = whole.swizzle * 8 // bits if whole.swizzle else tile[1]
    pieces = []
    for piece in whole.pieces:
        first, column = (at for at, extent in zip(piece.start, block.shape, strict=True) if extent > 1)
        pieces.append(Piece(piece.start, _offset(shape, width, (row + first, column))))
    return Transfer(tma_encoding(shape, bits, None, whole.swizzle), whole.swizzle, whole.box, tuple(pieces))


def _spread(shape: Sequence[int], entries: Sequence[int], missing: int = 0) -> tuple[int, ...]:
    """Returns entries for the axes of more than one element, with `missing` for the others."""
    rest = iter(entries)
    return tuple(next(rest) if extent > 1 else missing for extent in shape)


def _offset(tile: Sequence[int], width: int, start: Sequence[int]) -> int:
    """Returns where an element lies that begins a row of a panel: panels of `width` elements one after the other, then outer axes."""
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


def barriers(build: Builder, count: int) -> Value:
    """Returns a new barrier, or a ring of `count` barriers, not yet initialised."""
    encoding = SharedEncoding(swizzled((1,), (0,)))
    shape = (1,) if count == 1 else (count, 1)
    return build.value("ttg.local_alloc", (), None, MemDescType(shape, I64, encoding, True))


def block_accessed(access: Operation) -> TensorType:
    """Returns the type of the block that an access through a descriptor reads or writes."""
    return block_of(operand(access, "desc").type)


def buffer_type(block: TensorType) -> MemDescType:
    """Returns the type of the buffer that a block is copied to or from."""
    return MemDescType(squeezed(block.shape), block.element, transfer(block).encoding, True)


def transfer(block: TensorType) -> Transfer:
    found = transfer_of(block)
    assert found is not None, "only blocks that TMA can copy stay descriptors' (CUDABackend.descriptor_form)"
    return found


def block_bytes(block: TensorType) -> int:
    return math.prod(block.shape) * memory_bits(block) // 8


def read_buffer(build: Builder, kind: Type, buffer: Value) -> Value:
    """Returns what a buffer holds as a tile of a type that may have more axes of size 1."""
    assert isinstance(kind, TensorType)
    assert isinstance(buffer.type, MemDescType)
    shape = buffer.type.shape
    tile = TensorType(shape, kind.element, LinearEncoding(reshape(layout_of(kind), shape)))
    loaded = build.value("ttg.local_load", [buffer], None, tile)
    return loaded if shape == kind.shape else build.value("tt.reshape", [loaded], None, kind)


def is_copy_to(op: Operation, buffer: Value) -> bool:
    """Whether an operation only copies a tile to a buffer of the layout that `buffer` has."""
    kind = op.result.type if op.name == "ttg.local_alloc" else None
    assert isinstance(buffer.type, MemDescType)
    return isinstance(kind, MemDescType) and kind.encoding == buffer.type.encoding
