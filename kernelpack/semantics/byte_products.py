"""Products of unsigned bytes: they become products of signed ones, which every backend has, and sums."""

from __future__ import annotations

from kernelpack.ir.core import Builder
from kernelpack.kernel.types import dtype, int8, int32, uint8
from kernelpack.kernel.values import tensor
from kernelpack.semantics import operators, tiles

_BIAS = 128


def has_unsigned_bytes(x: object, y: object) -> bool:
    """Whether operands of a product are bytes, and one of them unsigned."""
    kinds = [value.dtype for value in (x, y) if isinstance(value, tensor)]
    return len(kinds) == 2 and uint8 in kinds and set(kinds) <= {int8, uint8}


def dot(b: Builder, x: tensor, y: tensor, acc: object, out_dtype: dtype | None) -> tensor:
    """Returns x @ y (+ acc) in int32 for tiles [.., M, K] and [.., K, N] of int8 and uint8. An unsigned operand is its signed one and 128:
    x @ y = (x - 128) @ y + 128 * sum of y along K, and the same for y."""
    left, right = (_signed(b, value) for value in (x, y))
    result = tiles.dot(b, left, right, acc, None, None, None, out_dtype)
    depth = x.shape[-1]
    if x.dtype == uint8:
        result = _plus(b, result, _sums(b, right, -2))
    if y.dtype == uint8:
        result = _plus(b, result, _sums(b, left, -1))
    if x.dtype == y.dtype:
        result = operators.arithmetic(b, "+", result, operators.constant(b, _BIAS * _BIAS * depth, int32))
    return result


def _signed(b: Builder, value: tensor) -> tensor:
    """Returns value - 128 as int8 for uint8: the highest bit flips."""
    if value.dtype == int8:
        return value
    flipped = operators.arithmetic(b, "^", value, operators.constant(b, _BIAS, uint8))
    return operators.bitcast(b, flipped, int8)


def _sums(b: Builder, value: tensor, along: int) -> tensor:
    """Returns 128 times the sums along an axis, which stays with extent 1."""
    wide = operators.cast(b, value, int32)
    axis = len(value.shape) + along
    (total,) = tiles.reduce(b, [wide], axis, lambda pair: [operators.arithmetic(b, "+", *pair)], keep_dims=True)
    return operators.arithmetic(b, "*", total, operators.constant(b, _BIAS, int32))


def _plus(b: Builder, result: tensor, sums: tensor) -> tensor:
    return operators.arithmetic(b, "+", result, operators.broadcast_to(b, sums, result.shape))
