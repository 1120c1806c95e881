"""Functions of libdevice that the C library does not have: inverses of the error function, erfcx, modified Bessel functions.

All are computed in float64. `c` calls a function of the C library for every element.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kernelpack.backends.cpu.math.formula import Number

Library = Callable[[str, Number], Number]

_BESSEL_SPLIT = 20.0
_SERIES = 45  # terms of the power series below the split: the last is under 2^-60 of the sum
_ASYMPTOTIC = 32  # terms of the expansion above it


def erfcinv(c: Library, x: Number) -> Number:
    """Where erfc has a value. The start (Abramowitz and Stegun 26.2.23) is within 4.5e-4; Halley's steps cube its error."""
    mirrored = x > 1.0
    small = (2.0 - x).where(mirrored, x)
    t = (-2.0 * c("log", small * 0.5)).intrinsic("sqrt")
    top = 2.515517 + t * (0.802853 + t * 0.010328)
    y = (t - top / (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308)))) * math.sqrt(0.5)
    for _ in range(2):
        error = c("erfc", y) - small
        y = y + error / (2.0 / math.sqrt(math.pi) * c("exp", -(y * y)) - y * error)
    y = y.constant(math.inf).where(small.equals(0.0), y)
    return (-y).where(mirrored, y)


def erfinv(c: Library, x: Number) -> Number:
    """Where erf has a value: by erfc, or near 0, where that says nothing, by steps on erf itself."""
    size = x.intrinsic("fabs")
    y = size * (math.sqrt(math.pi) / 2) * (1.0 + size * size * 0.2617993877991494)
    for _ in range(3):
        step = (c("erf", y) - size) * (math.sqrt(math.pi) / 2) * c("exp", y * y)
        y = y - step / (1.0 + y * step)
    return y.where(size < 0.5, erfcinv(c, 1.0 - size)).intrinsic("copysign", x)


def normcdfinv(c: Library, x: Number) -> Number:
    """Where the distribution function of the standard normal distribution has a value."""
    return -math.sqrt(2.0) * erfcinv(c, 2.0 * x)


def erfcx(c: Library, x: Number) -> Number:
    """exp(x^2) erfc(x). What x^2 loses by rounding is taken back; far out it is an asymptotic series (DLMF 7.12.1)."""
    square = x * x
    lost = x.intrinsic("fma", x, -square)
    near = c("exp", square) * c("erfc", x)
    near = near + (near * lost).where(near < math.inf, 0.0)
    series = x.constant(1.0)
    for k in range(7, 0, -1):
        series = 1.0 - series * (k - 0.5) / square
    return (series / (x * math.sqrt(math.pi))).where(x > 26.0, near)


def bessel(order: int) -> Callable[[Library, Number], Number]:
    """The modified Bessel function of the first kind I_0 or I_1, by its power series (DLMF 10.25.2) or, for large arguments, by
    Hankel's expansion (DLMF 10.40.1)."""

    def function(c: Library, x: Number) -> Number:
        size = x.intrinsic("fabs")
        t = size * size * 0.25
        near = x.constant(1.0)
        for k in range(_SERIES, 0, -1):
            near = 1.0 + t * near * (1.0 / (k * (k + order)))
        near = near * size * 0.5 if order else near
        inverse = 0.125 / size
        far = x.constant(1.0)
        for k in range(_ASYMPTOTIC, 0, -1):
            far = 1.0 + far * inverse * (((2 * k - 1) ** 2 - 4 * order**2) / k)
        half = c("exp", size * 0.5)  # in two factors: e^x is infinite before the result is
        far = half * (far / (size * (2 * math.pi)).intrinsic("sqrt")) * half
        result = near.where(size < _BESSEL_SPLIT, far)
        result = size.where(size.equals(math.inf), result)
        return result.intrinsic("copysign", x) if order else result

    return function
