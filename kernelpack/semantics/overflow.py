"""Arithmetic that stops where integers overflow, of kernels that are compiled for debugging."""

from __future__ import annotations

from kernelpack.ir.core import Builder
from kernelpack.kernel.types import int64
from kernelpack.kernel.values import tensor
from kernelpack.semantics import operators

_CHECKED = ("+", "-", "*")


def checked_arithmetic(b: Builder, symbol: str, lhs: operators.Operand, rhs: operators.Operand) -> tensor:
    """Returns the result of a binary operator; see operators.arithmetic. Sums, differences and products of integers are asserted to
    fit their type. Those of 64 bits are not: there is nothing wider to compare with."""
    result = operators.arithmetic(b, symbol, lhs, rhs)
    kind = result.dtype
    if symbol in _CHECKED and kind.is_int() and kind.int_bitwidth < 64:
        x, y = (operators.cast(b, value, int64) for value in operators.operands(b, symbol, lhs, rhs))
        exact = operators.arithmetic(b, symbol, x, y)  # beyond 2^63 it is negative: still no uint32
        low, high = (operators.constant(b, bound, exact.type) for bound in (kind.get_int_min_value(), kind.get_int_max_value()))
        fits = operators.logical(b, "&", operators.compare(b, ">=", exact, low), operators.compare(b, "<=", exact, high))
        b.create("tt.assert", [fits.handle], {"message": f"{symbol} overflows {kind}"})
    return result
