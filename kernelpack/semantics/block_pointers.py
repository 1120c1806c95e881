"""What block pointers mean: which blocks they take, how they move, and the pointers and masks that their loads and stores become.

A block pointer is its parts, which control flow and calls carry: base, sizes, strides and coordinates. Addresses are computed in 64
bits where the block is accessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelpack.errors import CompilationError
from kernelpack.ir.core import Builder
from kernelpack.kernel.structured_types import block_pointer_type
from kernelpack.kernel.types import describe, dtype, int32, int64, pointer_type
from kernelpack.kernel.values import block_pointer, tensor
from kernelpack.semantics import operators
from kernelpack.semantics.tiles import arange

PADDINGS = ("", "zero", "nan")


def make(b: Builder, base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any) -> block_pointer:
    """Returns a pointer to the block at some coordinates. Raises CompilationError for what Triton refuses too."""
    kind = base.type if isinstance(base, tensor) else None
    if not isinstance(kind, pointer_type) or kind.element_ty.is_block():
        raise CompilationError(f"tl.make_block_ptr needs a scalar pointer as base, got {describe(base)}")
    sizes, steps, places, block, axes = (
        _entries(name, value)
        for name, value in (
            ("shape", shape),
            ("strides", strides),
            ("offsets", offsets),
            ("block_shape", block_shape),
            ("order", order),
        )
    )
    counts = {len(entries) for entries in (sizes, steps, places, block, axes)}
    if len(counts) > 1:
        raise CompilationError(
            "shape, strides, offsets, block_shape and order of tl.make_block_ptr need one entry for each axis"
        )
    if sorted(axes) != list(range(len(axes))):
        raise CompilationError(f"order must be a permutation of the axes 0 to {len(axes) - 1}, is {list(axes)}")
    return block_pointer(
        block_pointer_type(kind.element_ty, block, axes),
        base,
        [_integer(b, "shape", size, int64) for size in sizes],
        [_integer(b, "strides", step, int64) for step in steps],
        [_integer(b, "offsets", place, int32) for place in places],
    )


def advance(b: Builder, pointer: Any, offsets: Any) -> block_pointer:
    """Returns the pointer to the block that lies `offsets` elements further along each axis."""
    if not isinstance(pointer, block_pointer):
        raise CompilationError(
            f"tl.advance needs a block pointer, got {describe(pointer)}", cure="make it by tl.make_block_ptr"
        )
    steps = _entries("offsets", offsets)
    if len(steps) != len(pointer.offsets):
        raise CompilationError(f"tl.advance got {len(steps)} offsets, the block pointer has {len(pointer.offsets)} axes")
    moved = [
        operators.arithmetic(b, "+", place, _integer(b, "offsets", step, int32))
        for place, step in zip(pointer.offsets, steps, strict=True)
    ]
    return block_pointer(pointer.type, pointer.base, pointer.sizes, pointer.strides, moved)


def access(b: Builder, pointer: block_pointer, boundary_check: Any, padding: Any) -> tuple[tensor, tensor | None, float | None]:
    """Returns the pointers to a block's elements, which of them are inside along the axes checked, and what the others read as."""
    shape = pointer.block_type.shape
    checked = _checked_axes(boundary_check, len(shape))
    if padding is not None and padding not in PADDINGS:
        raise CompilationError(f"padding_option cannot be {describe(padding)}", cure="use 'zero' or 'nan'")
    if padding == "nan" and not pointer.block_type.element_ty.is_floating():
        raise CompilationError(
            f"padding_option='nan' needs floats, the elements are {pointer.block_type.element_ty}", cure="use 'zero'"
        )
    pointers, inside = pointer.base, None
    for axis, extent in enumerate(shape):
        places = operators.arithmetic(b, "+", operators.cast(b, pointer.offsets[axis], int64), _wide_range(b, extent))
        for other in range(len(shape)):
            if other != axis:
                places = operators.expand_dims(b, places, other)
        pointers = operators.arithmetic(b, "+", pointers, operators.arithmetic(b, "*", places, pointer.strides[axis]))
        if axis in checked:
            for symbol, bound in ((">=", 0), ("<", pointer.sizes[axis])):
                holds = operators.compare(b, symbol, places, bound)
                inside = holds if inside is None else operators.arithmetic(b, "&", inside, holds)
    pointers = operators.broadcast_to(b, pointers, shape)
    if inside is None:
        return pointers, None, None
    return pointers, operators.broadcast_to(b, inside, shape), float("nan") if padding == "nan" else None


def _wide_range(b: Builder, extent: int) -> tensor:
    return operators.cast(b, arange(b, 0, extent), int64)


def _checked_axes(boundary_check: Any, rank: int) -> set[int]:
    axes = boundary_check if isinstance(boundary_check, (tuple, list)) else (boundary_check,)
    checked: set[int] = set()
    for axis in axes:
        if isinstance(axis, bool) or not isinstance(axis, int) or not -rank <= axis < rank:
            raise CompilationError(f"boundary_check names axes 0 to {rank - 1}, got {describe(axis)}")
        if axis % rank in checked:
            raise CompilationError(f"boundary_check names axis {axis} twice")
        checked.add(axis % rank)
    return checked


def _entries(name: str, value: Any) -> Sequence[Any]:
    return value if isinstance(value, (tuple, list)) else (value,)


def _integer(b: Builder, name: str, value: Any, kind: dtype) -> tensor:
    if operators.is_number(value) and isinstance(value, int):
        return operators.constant(b, value, kind)
    made = operators.to_tensor(b, value)
    if made.shape or not made.dtype.is_int():
        raise CompilationError(f"{name} of a block pointer takes integer scalars, got {describe(value)}")
    return operators.cast(b, made, kind)
