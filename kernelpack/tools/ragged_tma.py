"""Segments of a tensor's axis, read and written by tensor descriptors as if each were a tensor: rows after a segment's end read as
zero, and are not written. Names are those of triton.tools.ragged_tma."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelpack.errors import CompilationError
from kernelpack.kernel import values
from kernelpack.kernel.builtin import Generator, builtin
from kernelpack.kernel.jit import jit
from kernelpack.kernel.types import describe, int32
from kernelpack.semantics import operators
from kernelpack.tools.tensor_descriptor import TensorDescriptor


def create_ragged_descriptor(T: Any, block_shape: Sequence[int], ragged_dim: int = 0) -> TensorDescriptor:
    """Describes a torch tensor for the functions below. They say which axis has the segments; here Triton wants to know it too."""
    return TensorDescriptor.from_tensor(T, list(block_shape))


@builtin
def _until(desc: values.tensor_descriptor, axis: int, end: Any, *, _generator: Generator) -> values.tensor_descriptor:
    """Returns a descriptor of the same tensor, which ends at a coordinate."""
    if not isinstance(desc, values.tensor_descriptor):
        raise CompilationError(f"a ragged tensor is a tensor descriptor, got {describe(desc)}", cure="create_ragged_descriptor")
    b = _generator.builder
    sizes = list(desc.shape)
    sizes[axis] = operators.cast(b, operators.to_tensor(b, end), int32)
    return values.tensor_descriptor(desc.type, desc.base, sizes, desc.outer_strides)


@jit
def _moved(coords: Any, axis: Any, offset: Any) -> Any:
    """Returns coordinates with an offset added to one of them."""
    return (*coords[:axis], coords[axis] + offset, *coords[axis + 1 :])


@jit
def load_ragged(TMA: Any, batch_offset: Any, batch_size: Any, coords: Any, ragged_dim: Any = 0) -> Any:
    """Returns the block at `coords` of the segment that starts at `batch_offset` and has `batch_size` rows."""
    return _until(TMA, ragged_dim, batch_offset + batch_size).load(_moved(coords, ragged_dim, batch_offset))


@jit
def store_ragged(TMA: Any, batch_offset: Any, batch_size: Any, coords: Any, data: Any, ragged_dim: Any = 0) -> None:
    """Writes a block at `coords` of a segment."""
    _until(TMA, ragged_dim, batch_offset + batch_size).store(_moved(coords, ragged_dim, batch_offset), data)


@jit
def atomic_add_ragged(TMA: Any, batch_offset: Any, batch_size: Any, coords: Any, data: Any, ragged_dim: Any = 0) -> None:
    """Adds a block to what a segment has at `coords`."""
    _until(TMA, ragged_dim, batch_offset + batch_size).atomic_add(_moved(coords, ragged_dim, batch_offset), data)
