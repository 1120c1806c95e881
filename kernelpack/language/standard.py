"""The part of the language that is written in the language itself."""

# mypy: ignore-errors
# What follows is not Python to a type checker: parameters are tensors or compile-time values, as the call has it.

from __future__ import annotations

from kernelpack.kernel.builtin import member
from kernelpack.kernel.jit import constexpr_function, jit
from kernelpack.language import core, math
from kernelpack.language.core import zeros as zeros
from kernelpack.language.core import zeros_like as zeros_like
from kernelpack.language.sorting import _log2 as _log2
from kernelpack.language.sorting import bitonic_merge as bitonic_merge
from kernelpack.language.sorting import flip as flip
from kernelpack.language.sorting import sort as sort
from kernelpack.language.sorting import topk as topk

__all__ = [
    "argmax",
    "argmin",
    "cdiv",
    "cumprod",
    "cumsum",
    "interleave",
    "max",
    "min",
    "ravel",
    "reduce_or",
    "sigmoid",
    "softmax",
    "squeeze",
    "sum",
    "swizzle2d",
    "unsqueeze",
    "xor_sum",
]

# ---- small integer functions ----


@member
@jit
def cdiv(x, div):
    """Returns x / div rounded up, for non-negative integers."""
    return (x + div - 1) // div


@jit
def swizzle2d(i, j, size_i, size_j, size_g):
    """Returns the row and column that (i, j) has when a row-major walk of a size_i by size_j grid becomes one that goes down
    columns inside groups of size_g rows, so that neighbours in time share rows and columns."""
    position = i * size_j + j
    group = position // (size_g * size_j)
    first_row = group * size_g
    rows = core.minimum(size_i - first_row, size_g)
    inside = position % (size_g * size_j)
    return first_row + inside % rows, inside // rows


# ---- tiles ----


@member
@jit
def ravel(x, can_reorder=False):
    """Returns the elements in one axis."""
    return core.reshape(x, [x.numel], can_reorder=can_reorder)


@constexpr_function
def _without(shape, axis):
    return [extent for at, extent in enumerate(shape) if at != axis]


@jit
def squeeze(x, dim: core.constexpr):
    """Returns the elements without the axis `dim`, which has size 1."""
    axis: core.constexpr = dim % len(x.shape)
    core.static_assert(x.shape[axis] == 1, "only an axis of size 1 can be squeezed")
    return core.reshape(x, _without(x.shape, axis))


@jit
def unsqueeze(x, dim: core.constexpr):
    """Returns the elements with an axis of size 1 inserted at `dim`."""
    return core.expand_dims(x, dim)


@jit
def interleave(a, b):
    """Returns the elements of two tiles in turn along the last axis, which becomes twice as long."""
    joined = core.join(a, b)
    if len(joined.shape) == 1:
        return joined
    return core.reshape(joined, [*joined.shape[:-2], 2 * joined.shape[-2]])


# ---- activations ----


@member
@jit
def sigmoid(x):
    """Returns 1 / (1 + exp(-x)), elementwise, for float32 and float64."""
    return 1 / (1 + math.exp(-x))


@member
@jit
def softmax(x, dim=None, keep_dims=False, ieee_rounding=False):
    """Returns exp(x) / sum(exp(x)) along an axis (default: the first), with the maximum subtracted first."""
    axis: core.constexpr = 0 if dim is None else dim
    shifted = x - max(x, axis, keep_dims=True)
    exponentials = math.exp(shifted)
    return math.fdiv(exponentials, sum(exponentials, axis, keep_dims=True), ieee_rounding)


# ---- sums ----


@constexpr_function
def _sum_dtype(input, dtype):
    """Integers narrower than 32 bits are summed in 32; all else in its own type."""
    if dtype is not None:
        return dtype
    if input.is_int() and input.int_bitwidth < 32:
        return core.int32 if input.is_int_signed() else core.uint32
    return input


@jit
def _add(a, b):
    return a + b


@jit
def _multiply(a, b):
    return a * b


@member
@jit
def sum(input, axis=None, keep_dims=False, dtype: core.constexpr = None):
    """Returns the sum along an axis (None: of all). Integers below 32 bits are summed in 32; `dtype` chooses otherwise."""
    return core.reduce(input.to(_sum_dtype(input.dtype, dtype)), axis, _add, keep_dims)


@member
@jit
def cumsum(input, axis=0, reverse=False, dtype: core.constexpr = None):
    """Returns the running sum along an axis; types as `sum`, and bfloat16 as float32."""
    widened = _half_to_float(input)
    return core.associative_scan(widened.to(_sum_dtype(widened.dtype, dtype)), axis, _add, reverse)


@member
@jit
def cumprod(input, axis=0, reverse=False):
    """Returns the running product along an axis; bfloat16 as float32."""
    return core.associative_scan(_half_to_float(input), axis, _multiply, reverse)


@jit
def _half_to_float(x):
    return x.to(core.float32) if x.dtype == core.bfloat16 else x


# ---- bits ----


@jit
def _exclusive_or(a, b):
    return a ^ b


@jit
def _or(a, b):
    return a | b


@member
@jit
def xor_sum(input, axis=None, keep_dims=False):
    """Returns the bitwise exclusive or of integers along an axis (None: of all)."""
    core.static_assert(input.dtype.is_int(), "xor_sum takes integers")
    return core.reduce(input, axis, _exclusive_or, keep_dims)


@member
@jit
def reduce_or(input, axis=None, keep_dims=False):
    """Returns the bitwise or of integers along an axis (None: of all)."""
    core.static_assert(input.dtype.is_int(), "reduce_or takes integers")
    return core.reduce(input, axis, _or, keep_dims)


# ---- maxima and minima ----


@constexpr_function
def _extremum_dtype(input):
    """Types narrower than 32 bits are compared, and given back, in 32."""
    if input.primitive_bitwidth >= 32:
        return input
    return core.float32 if input.is_floating() else core.int32


@jit
def _larger(a, b):
    return core.maximum(a, b)


@jit
def _smaller(a, b):
    return core.minimum(a, b)


@jit
def _larger_left(value1, index1, value2, index2):
    first = (value1 > value2) | ((value1 == value2) & (index1 < index2))
    return core.where(first, value1, value2), core.where(first, index1, index2)


@jit
def _larger_any(value1, index1, value2, index2):
    first = value1 > value2
    return core.where(first, value1, value2), core.where(first, index1, index2)


@jit
def _smaller_left(value1, index1, value2, index2):
    first = (value1 < value2) | ((value1 == value2) & (index1 < index2))
    return core.where(first, value1, value2), core.where(first, index1, index2)


@jit
def _smaller_any(value1, index1, value2, index2):
    first = value1 < value2
    return core.where(first, value1, value2), core.where(first, index1, index2)


@jit
def _reduce_with_indices(input, axis, combine: core.constexpr, keep_dims):
    """Reduces (value, index along the axis) pairs; along all axes the index is that of the row-major order."""
    if axis is None:
        flat = core.reshape(input, [input.numel])
        value, index = core.reduce((flat, core.arange(0, input.numel)), 0, combine)
        if keep_dims:
            for _ in core.static_range(len(input.shape)):
                value = core.expand_dims(value, 0)
                index = core.expand_dims(index, 0)
        return value, index
    at: core.constexpr = axis % len(input.shape)
    index = core.reshape(core.arange(0, input.shape[at]), (1,) * at + (input.shape[at],) + (1,) * (len(input.shape) - at - 1))
    return core.reduce((input, core.broadcast_to(index, input.shape)), at, combine, keep_dims)


@member
@jit
def max(input, axis=None, return_indices=False, return_indices_tie_break_left=True, keep_dims=False):
    """Returns the maximum along an axis (None: of all), with `return_indices` also where it is.

    NaN is ignored unless all are NaN. Types below 32 bits come back as float32 or int32, with indices bfloat16 only.
    """
    if return_indices:
        combine: core.constexpr = _larger_left if return_indices_tie_break_left else _larger_any
        return _reduce_with_indices(_half_to_float(input), axis, combine, keep_dims)
    return core.reduce(input.to(_extremum_dtype(input.dtype)), axis, _larger, keep_dims)


@member
@jit
def min(input, axis=None, return_indices=False, return_indices_tie_break_left=True, keep_dims=False):
    """Returns the minimum along an axis (None: of all), with `return_indices` also where it is; types as `max`."""
    if return_indices:
        combine: core.constexpr = _smaller_left if return_indices_tie_break_left else _smaller_any
        return _reduce_with_indices(_half_to_float(input), axis, combine, keep_dims)
    return core.reduce(input.to(_extremum_dtype(input.dtype)), axis, _smaller, keep_dims)


@member
@jit
def argmax(input, axis, tie_break_left=True, keep_dims=False):
    """Returns where the maximum along an axis is; of equals the first, unless tie_break_left=False."""
    _, index = max(input, axis, True, tie_break_left, keep_dims)
    return index


@member
@jit
def argmin(input, axis, tie_break_left=True, keep_dims=False):
    """Returns where the minimum along an axis is; of equals the first, unless tie_break_left=False."""
    _, index = min(input, axis, True, tie_break_left, keep_dims)
    return index
