"""Exponents of softmax: one multiplication and addition for each score, right however large scores are."""

import kernelpack as kp
import kernelpack.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
FLOAT32_MAX = tl.constexpr(2.0**128 - 2.0**104)

LIMIT = tl.constexpr(2.0**27)
"""Up to a maximum of 2^27 in units of log2(e), weights that are off by what rounding adds to it fit into float16."""


@kp.jit
def power_below(unit):
    """Returns the largest power of two that is at most `unit`."""
    return (tl.to_tensor(unit).to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)


@kp.jit
def line_of(peak, unit, power):
    """Returns a factor and a shift. 2^(x * factor + shift) is 2^((x - peak) * unit), times what is the same for all x.

    That is what rounding adds to peak * unit. Beyond LIMIT it could exceed an exponent, and the product might overflow. There the
    factor is `power`, a power of two near `unit`, so that the product is exact. float32 numbers of that size are equal, or so far
    apart that the smaller ones count for little.
    """
    factor = tl.where(tl.abs(peak) < LIMIT / unit, unit, power)
    return factor, -(peak * factor)


@kp.jit
def line_below(peak, unit):
    """Returns what line_of does, such that no x up to the peak gives more than 1: the shift is lower than what rounding may add to it. And
    whether the factor is `unit`."""
    near = tl.abs(peak) < LIMIT / unit
    factor, shift = line_of(peak, unit, power_below(unit))
    return factor, tl.where(near, tl.fma(tl.abs(shift), -(2.0**-23), shift), shift), near
