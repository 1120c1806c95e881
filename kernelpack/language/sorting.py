"""Orders of elements along an axis: flips, sorting, the largest k. Written in the language itself.

Sorting is Batcher's bitonic network: each step compares every element with the one a power of two away, which a gather fetches. Steps are
written out, so that the distance is known: within a warp, or a vector of a CPU, elements then meet in registers.
"""

# mypy: ignore-errors
# What follows is not Python to a type checker: parameters are tensors or compile-time values, as the call has it.

from __future__ import annotations

import math

from kernelpack.kernel.builtin import member
from kernelpack.kernel.jit import constexpr_function, jit
from kernelpack.language import core, tile_ops

MOST_ELEMENTS = 1 << 19
"""How many elements are compared by steps that are written out: 78 steps over 4,096 take two seconds to compile for a GPU."""

__all__ = ["bitonic_merge", "flip", "sort", "topk"]


@constexpr_function
def _axis(shape, dim):
    """Returns an axis counted from the front; for a scalar 0, which what uses it refuses."""
    if not shape:
        return 0
    return (len(shape) - 1 if dim is None else dim) % len(shape)


@constexpr_function
def _log2(n):
    return n.bit_length() - 1


@constexpr_function
def _pairs(shape, k):
    """Runs of `k` elements, two and two."""
    return [*shape[:-1], shape[-1] // (2 * k), 2, k]


@constexpr_function
def _row(rank, axis, extent):
    return [extent if at == axis else 1 for at in range(rank)]


@constexpr_function
def _is_small(shape, steps):
    """Whether steps over a tile are written out; others would take long to compile."""
    return steps * math.prod(shape) <= MOST_ELEMENTS


@jit
def _places(shape: core.constexpr, axis: core.constexpr):
    """Returns where each element of a tile is along an axis."""
    places = core.reshape(core.arange(0, shape[axis]), _row(len(shape), axis, shape[axis]))
    return core.broadcast_to(places, shape)


@member
@jit
def flip(x, dim: core.constexpr = None):
    """Returns the elements in reverse order along `dim` (default: the last axis)."""
    core.static_assert(len(x.shape) > 0, "a tile is needed, not a scalar")
    axis: core.constexpr = _axis(x.shape, dim)
    return tile_ops.gather(x, x.shape[axis] - 1 - _places(x.shape, axis), axis)


@jit
def _merge_step(x, places, distance, up):
    """Orders pairs of elements that lie `distance` apart along the last axis, upwards where `up`."""
    other = tile_ops.gather(x, places ^ distance, len(x.shape) - 1)
    takes_smaller = ((places & distance) == 0) == up
    if x.dtype.is_floating():  # both keep theirs where neither is smaller, so that no NaN and no sign of a zero is lost
        return core.where(core.where(takes_smaller, other < x, other > x), other, x)
    if x.dtype.primitive_bitwidth == 64:  # one comparison, where hardware has no minimum
        return core.where((other < x) == takes_smaller, other, x)
    return core.where(takes_smaller, core.minimum(x, other), core.maximum(x, other))


@jit
def _check_last(shape: core.constexpr, dim: core.constexpr):
    core.static_assert(len(shape) > 0, "a tile is needed, not a scalar")
    core.static_assert(_axis(shape, dim) == len(shape) - 1, "only the last axis can be sorted")


@jit
def bitonic_merge(x, dim: core.constexpr = None, descending: core.constexpr = False):
    """Returns the elements in order along the last axis, if they rise and then fall, or fall and then rise, before."""
    _check_last(x.shape, dim)
    extent: core.constexpr = x.shape[-1]
    places = _places(x.shape, len(x.shape) - 1)
    up = (places & 0) != (0 if descending else 1)
    for step in core.static_range(_log2(extent)):
        x = _merge_step(x, places, extent >> (step + 1), up)
    return x


@jit
def _sort_runs(x, length: core.constexpr, descending: core.constexpr):
    """Orders each `length` elements along the last axis, in turn one way and the other."""
    places = _places(x.shape, len(x.shape) - 1)
    stages: core.constexpr = _log2(length)
    steps: core.constexpr = core.static_range if _is_small(x.shape, stages * (stages + 1) // 2) else range
    for stage in steps(1, stages + 1):  # makes runs of 2^stage elements
        rising = ((places >> stage) & 1) == 0
        up = rising != (1 if descending else 0)
        for step in steps(stage):
            x = _merge_step(x, places, 1 << (stage - 1 - step), up)
    return x


@jit
def _larger(x, y):
    return core.maximum(x, y).to(x.dtype)  # it widens bfloat16


@jit
def _smaller(x, y):
    return core.minimum(x, y).to(x.dtype)


@member
@jit
def sort(x, dim: core.constexpr = None, descending: core.constexpr = False):
    """Returns the elements in order along the last axis. Where there are NaNs the order is unspecified."""
    _check_last(x.shape, dim)
    return _sort_runs(x, x.shape[-1], descending)


@jit
def topk(x, k: core.constexpr, dim: core.constexpr = None, descending: core.constexpr = True):
    """Returns the `k` largest elements along the last axis, the largest first (descending=False: the smallest, rising).

    Of a run that rises and one that falls, the larger of each two elements are the largest of both; they rise and fall, or the other way.
    """
    _check_last(x.shape, dim)
    x = _sort_runs(x, k, descending)
    for _ in core.static_range(_log2(x.shape[-1]) - _log2(k)):
        x = core.reduce(core.reshape(x, _pairs(x.shape, k)), len(x.shape), _larger if descending else _smaller)
        x = core.reshape(x, [*x.shape[:-2], x.shape[-2] * k])
        places = _places(x.shape, len(x.shape) - 1)
        up = (((places >> _log2(k)) & 1) == 0) != (1 if descending else 0)
        for step in core.static_range(_log2(k)):
            x = _merge_step(x, places, k >> (step + 1), up)
    return x
