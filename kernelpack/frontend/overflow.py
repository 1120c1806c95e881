"""Arithmetic that stops where integers overflow, of kernels that are compiled for debugging."""

from __future__ import annotations

from kernelpack.frontend import semantic
from kernelpack.ir.core import Builder
from kernelpack.language.types import int64
from kernelpack.language.values import tensor

_CHECKED = ("+", "-", "*")


def checked_arithmetic(b: Builder, symbol: str, lhs: semantic.Operand, rhs: semantic.Operand) -> tensor:
    """Returns the result of a binary operator; see semantic.arithmetic. Sums, differences and products of integers are asserted to
    fit their type. Those of 64 bits are not: there is nothing wider to compare with."""
    result = semantic.arithmetic(b, symbol, lhs, rhs)
    kind = result.dtype
    if symbol in _CHECKED and kind.is_int() and kind.int_bitwidth < 64:
        x, y = (semantic.cast(b, value, int64) for value in semantic.operands(b, symbol, lhs, rhs))
        exact = semantic.arithmetic(b, symbol, x, y)  # beyond 2^63 it is negative: still no uint32
        low, high = (semantic.constant(b, bound, exact.type) for bound in (kind.get_int_min_value(), kind.get_int_max_value()))
        fits = semantic.logical(b, "&", semantic.compare(b, ">=", exact, low), semantic.compare(b, "<=", exact, high))
        b.create("tt.assert", [fits.handle], {"message": f"{symbol} overflows {kind}"})
    return result
