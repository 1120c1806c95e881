"""Tensor descriptors: a tensor in global memory, loaded and stored a block at a time by coordinates. Names as in Triton.

What lies outside of the tensor reads as zero, or as NaN with `padding_option="nan"`, and is not written. On GPUs that have it the
hardware's bulk copies (TMA) move the blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelpack.kernel.builtin import Generator, builtin
from kernelpack.kernel.values import tensor, tensor_descriptor
from kernelpack.semantics import descriptors

__all__ = ["load_tensor_descriptor", "make_tensor_descriptor", "store_tensor_descriptor", "tensor_descriptor"]


@builtin
def make_tensor_descriptor(
    base: tensor, shape: Any, strides: Any, block_shape: Any, padding_option: str = "zero", *, _generator: Generator
) -> tensor_descriptor:
    """Describes the tensor at `base` of 1 to 5 axes: sizes, strides in elements, of which the last is 1, and the block's shape.

    The block's extents are powers of two, its last axis has 16 bytes or more. Sizes are int32, coordinates too.
    """
    return descriptors.make(_generator.builder, base, shape, strides, block_shape, padding_option)


@builtin
def load_tensor_descriptor(desc: tensor_descriptor, offsets: Any, *, _generator: Generator) -> tensor:
    """Returns the block whose first element has the coordinates `offsets`."""
    return descriptors.load(_generator.builder, desc, offsets)


@builtin
def store_tensor_descriptor(desc: tensor_descriptor, offsets: Any, value: Any, *, _generator: Generator) -> None:
    """Writes a block, converted to the element type, so that its first element has the coordinates `offsets`."""
    descriptors.store(_generator.builder, desc, offsets, value)


@builtin
def gather(desc: tensor_descriptor, x_offsets: tensor, y_offset: Any, *, _generator: Generator) -> tensor:
    """Returns rows of a tensor of two axes, picked by a tile of row numbers, from column `y_offset` on."""
    return descriptors.gather(_generator.builder, desc, x_offsets, y_offset)


@builtin
def scatter(desc: tensor_descriptor, value: Any, x_offsets: tensor, y_offset: Any, *, _generator: Generator) -> None:
    """Writes rows of a tensor of two axes, picked by a tile of row numbers, from column `y_offset` on."""
    descriptors.scatter(_generator.builder, desc, value, x_offsets, y_offset)


def _atomic(what: str) -> Callable[..., Any]:
    def method(desc: tensor_descriptor, offsets: Any, value: Any, *, _generator: Generator) -> None:
        descriptors.reduce(_generator.builder, what, desc, offsets, value)

    method.__name__ = f"atomic_{what}"
    method.__doc__ = f"Combines a block with the one in memory by {what}, atomically element by element."
    return builtin(method)


tensor_descriptor.methods.update(
    load=load_tensor_descriptor,
    store=store_tensor_descriptor,
    gather=gather,
    scatter=scatter,
    **{f"atomic_{what}": _atomic(what) for what in ("add", "min", "max", "and", "or", "xor")},
)
