"""tt, continued: tensor descriptors, through which blocks of a tensor in global memory are read and written by coordinates.

What lies outside of the tensor reads as the descriptor's padding, zero or NaN, and is not written.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import Dialect, Effect, Trait, attr, operand, operands_called, row
from kernelpack.ir.dialects.tt import CACHE_MODIFIERS, EVICTION_POLICIES, FLOAT_ATOMICS
from kernelpack.ir.types import I32, I64, PointerType, TensorDescType, TensorType, Type, is_float, shape_of

LOAD, STORE = "tt.descriptor_load", "tt.descriptor_store"
ACCESSES = (LOAD, STORE)
"""The accesses through descriptors that TMA does."""
MAX_RANK = 5
"""What the hardware's tensor maps have (CUDA driver API, cuTensorMapEncodeTiled)."""
PADDINGS = ("zero", "nan")
REDUCTIONS = ("add", "min", "max", "umin", "umax", "and", "or", "xor")
"""The kinds of tt.descriptor_reduce."""


def block_of(desc: Type) -> TensorType:
    """Returns the type of a block of a descriptor."""
    assert isinstance(desc, TensorDescType)
    return desc.block


def atomic_of(reduction: str, element: Type) -> str:
    """Returns what tt.atomic_rmw calls a kind of tt.descriptor_reduce of some elements."""
    return f"f{reduction}" if is_float(element) else reduction


def squeezed(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns a shape without its axes of size 1, which a block's tile may leave out."""
    return tuple(extent for extent in shape if extent > 1)


def _check_make(op: Operation) -> str | None:
    base, block = op.operands[0].type, block_of(op.result.type)
    if not isinstance(base, PointerType) or base.pointee != block.element:
        return f"a descriptor of {block.element} needs a pointer to them, not {base}"
    shape, strides = operands_called(op, "shape"), operands_called(op, "strides")
    if len(shape) != block.rank or not 1 <= block.rank <= MAX_RANK:
        return f"a block of {block.rank} axes needs as many sizes and strides, 1 to {MAX_RANK}; there are {len(shape)}"
    if any(value.type != I32 for value in shape) or any(value.type != I64 for value in strides):
        return "sizes are i32, strides i64"
    if is_float(block.element) or op.attributes.get("padding", "zero") == "zero":
        return None
    return f"{block.element} has no NaN"


def _check_indices(op: Operation) -> str | None:
    block = block_of(op.operands[0].type)
    indices = operands_called(op, "indices")
    if len(indices) != block.rank or any(value.type != I32 for value in indices):
        return f"takes {block.rank} coordinates of type i32"
    tile = op.result.type if op.results else operand(op, "src").type
    if (
        not isinstance(tile, TensorType)
        or tile.element != block.element
        or tile.shape not in (block.shape, squeezed(block.shape))
    ):
        return f"{tile} is no block of {op.operands[0].type}"
    return None


def _check_reduce(op: Operation) -> str | None:
    kind, element = op.attributes["kind"], block_of(op.operands[0].type).element
    if is_float(element) and atomic_of(kind, element) not in FLOAT_ATOMICS:
        return f"{kind} does not apply to {element}"
    return _check_indices(op)


def _check_rows(op: Operation) -> str | None:
    """Checks gather and scatter: rows of a tensor of two axes, picked by a tile of row numbers."""
    block, rows = block_of(op.operands[0].type), operand(op, "x_offsets").type
    if block.rank != 2 or block.shape[0] != 1:
        return f"takes a descriptor whose block is one row, not {block}"
    if len(shape_of(rows)) != 1 or operand(op, "y_offset").type != I32:
        return "takes a tile of row numbers, and the i32 number of the first column"
    tile = op.result.type if op.results else operand(op, "src").type
    expected = (shape_of(rows)[0], block.shape[1])
    if not isinstance(tile, TensorType) or tile.shape != expected or tile.element != block.element:
        return f"{tile} is not {'x'.join(map(str, expected))} elements of {block.element}"
    return None


_CACHING = [attr("cache", CACHE_MODIFIERS, default="none"), attr("evict", EVICTION_POLICIES, default="normal")]

DESCRIPTORS = Dialect(
    "tt",
    [
        row(
            "tt.make_tensor_descriptor",
            "base: pointer, shape*: int_scalar, strides*: int_scalar",
            result="tensordesc",
            attributes=[attr("padding", PADDINGS, default="zero")],
            traits=[Trait.PURE],
            format="$base, [ $shape ], [ $strides ] attr-dict : type($base, !tt.ptr), type($result, !tt.tensordesc)",
            check=_check_make,
        ),
        row(
            "tt.descriptor_load",
            "desc: tensordesc, indices*: int_scalar",
            attributes=_CACHING,
            effects=[Effect.READ_GLOBAL],
            format="$desc [ $indices ] (cacheModifier = $cache)? (evictionPolicy = $evict)? attr-dict : "
            "type($desc) -> type($result)",
            check=_check_indices,
        ),
        row(
            "tt.descriptor_store",
            "desc: tensordesc, src: tensor, indices*: int_scalar",
            results=0,
            effects=[Effect.WRITE_GLOBAL],
            format="$desc [ $indices ], $src attr-dict : type($desc), type($src)",
            check=_check_indices,
        ),
        # combines each element with the one in memory, atomically
        row(
            "tt.descriptor_reduce",
            "desc: tensordesc, src: tensor, indices*: int_scalar",
            results=0,
            attributes=[attr("kind", REDUCTIONS)],
            effects=[Effect.READ_GLOBAL, Effect.WRITE_GLOBAL],
            format="$kind, $desc [ $indices ], $src attr-dict : type($desc), type($src)",
            check=_check_reduce,
        ),
        row(
            "tt.descriptor_gather",
            "desc: tensordesc, x_offsets: tensor, y_offset: int_scalar",
            result="tensor",
            effects=[Effect.READ_GLOBAL],
            format="$desc [ $x_offsets, $y_offset ] attr-dict : functional-type",
            check=_check_rows,
        ),
        row(
            "tt.descriptor_scatter",
            "desc: tensordesc, x_offsets: tensor, y_offset: int_scalar, src: tensor",
            results=0,
            effects=[Effect.WRITE_GLOBAL],
            format="$desc [ $x_offsets, $y_offset ], $src attr-dict : type($desc), type($x_offsets), type($y_offset), type($src)",
            check=_check_rows,
        ),
    ],
)
