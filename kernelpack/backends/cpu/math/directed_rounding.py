"""Arithmetic that rounds down (rd), up (ru) or toward zero (rz) on CPUs, whose instructions round to nearest.

The nearest result is moved by one place where the exact one lies on its other side. On which side it lies is the sign of what
is left when the nearest result is taken from the exact one, computed in float64 without rounding errors (Boldo and Muller,
"Exact and approximated error of the FMA", 2011; Ogita, Rump and Oishi, "Accurate sum and dot product", 2005).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kernelpack.backends.cpu.math.formula import Number
from kernelpack.llvm.text import Emitter, Val, element_type, literal, vector_type, vector_width

_TINY = 2.0**-900  # errors of results below may lie under the smallest float64: they are computed for scaled operands
_HUGE = 2.0**1000  # sums of such may be infinite on the way


def directed(em: Emitter, name: str, mode: str, args: Sequence[Val]) -> Val:
    """Returns add, sub, mul, div, fma, rcp or sqrt of float32 or float64 values, rounded as `mode` says."""
    operands = [Number(em, value) for value in args]
    operation, remainder = _OPERATIONS[name]
    near = operation(*operands)
    wide, result = [value.converted("double") for value in operands], near.converted("double")
    left = remainder(result, *wide)
    finite = wide[0].intrinsic("fabs") < math.inf
    for value in wide[1:]:
        finite = finite & (value.intrinsic("fabs") < math.inf)
    if name in ("div", "rcp"):
        finite = finite & wide[-1].differs(0.0)
    left = (-result).where(finite & result.intrinsic("fabs").equals(math.inf), left)  # too large: the exact one is smaller
    return moved(em, near, left, mode)


def moved(em: Emitter, near: Number, left: Number, mode: str) -> Val:
    """Returns the neighbour of a value on the side of the exact result, where the mode asks for it."""
    if mode == "rd":
        return (-Number(em, moved(em, -near, -left, "ru"))).val
    kind = near.val.type
    ints = vector_type("i32" if element_type(kind) == "float" else "i64", vector_width(kind))
    bits, one = em.cast("bitcast", near.val, ints), literal(1, ints)
    inward = Number(em, em.cast("bitcast", em.binary("sub", bits, one), kind))
    if mode == "rz":
        return inward.where((near > 0.0) & (left < 0.0) | (near < 0.0) & (left > 0.0), near).val
    outward = Number(em, em.cast("bitcast", em.binary("add", bits, one), kind))
    least = Number(em, em.cast("bitcast", one, kind))
    return inward.where(near < 0.0, outward.where(near > 0.0, least)).where(left > 0.0, near).val


def _sign(x: Number) -> Number:
    """Returns 1, -1, or 0."""
    return x.constant(0.0).where(x.equals(0.0), x.constant(1.0).intrinsic("copysign", x))


def _sum(x: Number, y: Number) -> tuple[Number, Number]:
    """Returns a sum and its rounding error."""
    total = x + y
    other = total - x
    return total, (x - (total - other)) + (y - other)


def _left_of_sum(result: Number, x: Number, y: Number) -> Number:
    total, error = _sum(x, y)
    return (total - result) + error


def _left_of_fma(result: Number, x: Number, y: Number, z: Number) -> Number:
    size, other = (x * y).intrinsic("fabs"), z.intrinsic("fabs")
    tiny = (size < _TINY) & (other < 2.0**-800)
    huge = (size > _HUGE) | (other > _HUGE)
    factor = x.constant(2.0**300).where(tiny, x.constant(0.5).where(huge, 1.0))
    signs = _sign(x) * _sign(y), _sign(z)
    x, y, z, result = x * factor, y * factor, z * factor * factor, result * factor * factor
    product = x * y
    first, small = _sum(z, x.intrinsic("fma", y, -product))
    high, low = _sum(product, first)
    left = ((high - result) + low) + small
    lost = signs[0].where(product.intrinsic("fabs") < _TINY, signs[1].where(z.equals(0.0), 0.0))
    return lost.where(left.equals(0.0), left)


def _left_of_quotient(result: Number, x: Number, y: Number) -> Number:
    tiny = (x.intrinsic("fabs") < _TINY) & (y.intrinsic("fabs") < 2.0**100)
    factor = x.constant(2.0**900).where(tiny, 1.0)
    left = (-result).intrinsic("fma", y * factor, x * factor) * _sign(y)
    return (_sign(x) * _sign(y)).where(result.equals(0.0) & (y.intrinsic("fabs") < math.inf), left)


def _left_of_root(result: Number, x: Number) -> Number:
    factor = x.constant(2.0**300).where(x < _TINY, 1.0)
    result = result * factor
    return (-result).intrinsic("fma", result, x * factor * factor)


_OPERATIONS: dict[str, tuple[Callable[..., Number], Callable[..., Number]]] = {
    "add": (lambda x, y: x + y, _left_of_sum),
    "sub": (lambda x, y: x - y, lambda result, x, y: _left_of_sum(result, x, -y)),
    "mul": (lambda x, y: x * y, lambda result, x, y: _left_of_fma(result, x, y, x.constant(0.0))),
    "div": (lambda x, y: x / y, _left_of_quotient),
    "fma": (lambda x, y, z: x.intrinsic("fma", y, z), _left_of_fma),
    "rcp": (lambda x: 1.0 / x, lambda result, x: _left_of_quotient(result, x.constant(1.0), x)),
    "sqrt": (lambda x: x.intrinsic("sqrt"), _left_of_root),
}
"""The operation, and what is left of the exact value when its result is taken away, or something of its sign; both of numbers."""
