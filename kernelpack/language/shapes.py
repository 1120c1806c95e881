"""Shapes of tiles: axes that are inserted, repeated, reordered, joined and split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelpack.errors import CompilationError
from kernelpack.kernel.builtin import Generator, builtin, member
from kernelpack.kernel.types import describe
from kernelpack.kernel.values import tensor
from kernelpack.semantics import operators, tiles


def dims_of(dims: tuple[Any, ...]) -> Sequence[Any]:
    """Dimensions are given as one sequence or one by one."""
    return dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims


@member
@builtin
def expand_dims(input: Any, axis: int | Sequence[int], *, _generator: Generator) -> tensor:
    """Inserts axes of size 1 at `axis` (positions in the result)."""
    value = operators.to_tensor(_generator.builder, input)
    axes: list[Any] = list(axis) if isinstance(axis, (tuple, list)) else [axis]
    rank = len(value.shape) + len(axes)
    if any(isinstance(entry, bool) or not isinstance(entry, int) for entry in axes):
        raise CompilationError(f"axis must be a compile-time integer or several, is {describe(axis)}")
    for entry in axes:
        if not -rank <= entry < rank:
            raise CompilationError(f"invalid axis {entry}. Expected {-rank} <= axis < {rank}: the result has {rank} dimensions")
    places = [entry + rank if entry < 0 else entry for entry in axes]
    if len(set(places)) != len(places):
        raise CompilationError(f"expand_dims received duplicate axes, normalized axes = {sorted(places)}")
    for place in sorted(places):
        value = operators.expand_dims(_generator.builder, value, place)
    return value


@member
@builtin
def broadcast_to(input: Any, *shape: Any, _generator: Generator) -> tensor:
    """Repeats axes of size 1 to `shape`."""
    return operators.broadcast_to(_generator.builder, operators.to_tensor(_generator.builder, input), dims_of(shape))


@builtin
def broadcast(input: Any, other: Any, *, _generator: Generator) -> tuple[tensor, tensor]:
    """Returns both values in their common shape."""
    b = _generator.builder
    x, y = operators.broadcast(b, operators.to_tensor(b, input), operators.to_tensor(b, other))
    return x, y


@member
@builtin
def reshape(input: Any, *shape: Any, can_reorder: bool = False, _generator: Generator) -> tensor:
    """Returns the elements, in row-major order, in another shape of the same size."""
    b = _generator.builder
    return tiles.reshape(b, operators.to_tensor(b, input), dims_of(shape), can_reorder)


@member
@builtin
def view(input: Any, *shape: Any, _generator: Generator) -> tensor:
    """Returns the elements in another shape of the same size; their order may change."""
    b = _generator.builder
    return tiles.reshape(b, operators.to_tensor(b, input), dims_of(shape), True)


@member
@builtin
def permute(input: tensor, *dims: Any, _generator: Generator) -> tensor:
    """Reorders the axes."""
    return tiles.permute(_generator.builder, operators.to_tensor(_generator.builder, input), dims_of(dims))


@member
@builtin
def trans(input: tensor, *dims: Any, _generator: Generator) -> tensor:
    """Swaps the last two axes, or reorders them all as `dims` says."""
    value = operators.to_tensor(_generator.builder, input)
    if dims:
        return tiles.permute(_generator.builder, value, dims_of(dims))
    return tiles.transpose(_generator.builder, value)


@builtin
def join(a: Any, b: Any, *, _generator: Generator) -> tensor:
    """Joins two tiles in a new last axis of size 2."""
    builder = _generator.builder
    return tiles.join(builder, operators.to_tensor(builder, a), operators.to_tensor(builder, b))


@member
@builtin
def split(a: tensor, *, _generator: Generator) -> tuple[tensor, tensor]:
    """Splits a tile along its last axis, which has size 2, into two."""
    return tiles.split(_generator.builder, operators.to_tensor(_generator.builder, a))
