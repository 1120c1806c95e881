"""Block pointers: a pointer to a block of a tensor, loaded and stored with its bounds checked. Names as in Triton."""

from __future__ import annotations

from typing import Any

from kernelpack.kernel.builtin import Generator, builtin
from kernelpack.kernel.values import block_pointer, tensor
from kernelpack.semantics import block_pointers

__all__ = ["advance", "make_block_ptr"]


@builtin
def make_block_ptr(
    base: tensor, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any, *, _generator: Generator
) -> block_pointer:
    """Returns a pointer to the block of `block_shape` whose first element has the coordinates `offsets` in the tensor at `base`.

    `shape` and `strides` (in elements) are the tensor's; `order` tells its axes, the fastest first, and changes no result.
    tl.load and tl.store take it with `boundary_check`, the axes along which elements outside of the tensor are masked.
    """
    return block_pointers.make(_generator.builder, base, shape, strides, offsets, block_shape, order)


@builtin
def advance(base: block_pointer, offsets: Any, *, _generator: Generator) -> block_pointer:
    """Returns the pointer to the block that lies `offsets` elements further along each axis."""
    return block_pointers.advance(_generator.builder, base, offsets)


block_pointer.methods.update(advance=advance)
