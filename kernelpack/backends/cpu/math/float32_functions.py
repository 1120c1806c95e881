"""Functions of float32 that are computed in float64, by formulas without calls: vectors stay vectors.

Float64 leaves room for short formulas: their relative errors are below 2^-30, so that results are off by 0.51 ulp at most. All
float32 arguments are in range, the largest and the smallest too. Polynomials interpolate at Chebyshev's nodes, which is within a
small factor of the best; the comments give the relative error of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kernelpack.backends.cpu.math.formula import Number, Truth
from kernelpack.llvm.text import Val, literal, vector_type, vector_width

_SIN = (1.5707963267875373, -0.6459640960575432, 0.07969258060130405, -0.004681250524794188, 0.00015817063645071373)  # sin(pi/2 f) / f in f^2, |f| <= 1/2: 5.2e-12  # fmt: skip
_COS = (0.9999999999485585, -1.2337005400095518, 0.2536691888130153, -0.020859959589298503, 0.0009033788850242754)  # cos(pi/2 f) in f^2, |f| <= 1/2: 7.3e-11  # fmt: skip
_EXP2 = (0.6931471805599453, 0.24022650922288757, 0.055504108839096185, 0.009618056678524637, 0.001333350238616277, 0.0001546144469856913, 1.5297323760701075e-05)  # (2^r - 1) / r, |r| <= 1/2: 2.7e-10  # fmt: skip
_LOG2 = (1.4426950408862034, -0.7213475203430864, 0.4808983490727961, -0.36067378977100695, 0.28853876232996745, -0.24044662677727305, 0.20610869528306625, -0.18043268521020117, 0.16018226130296026, -0.14252340755410017, 0.13062890256021095, -0.13478928738366042, 0.13113743753686682, -0.06806287590390596)  # log2(1 + f) / f, 1 + f in [1/sqrt2, sqrt2]: 3.0e-12  # fmt: skip
_ATAN = (0.9999999999887381, -0.3333333295165722, 0.19999978336217084, -0.1428522560816021, 0.11105306732424464, -0.09049179093720577, 0.07495262378099696, -0.06022196387937433, 0.04364658944281667, -0.02600599597760862, 0.011427633277375594, -0.0031954252407363944, 0.00041922786011272897)  # atan(a) / a in a^2, a <= 1: 1.1e-11  # fmt: skip

# 2/pi in two float64. Above these |x| without its leading bits: multiplied with x, those give multiples of four quadrants.
_QUADRANTS = (0.6366197723675813, 7.166494911215068e-17)
_QUADRANTS_ABOVE = {
    2.0**46: (2.0449648759307553e-07, 6.074026489649846e-24),
    2.0**67: (1.4504564269239186e-14, -5.321602079519459e-31),
    2.0**88: (1.0760572810738749e-19, -1.690193447800753e-36),
    2.0**109: (2.52682603558315e-26, -1.3190424939343312e-42),
}
_ROUNDER = 1.5 * 2.0**52  # added to x, it leaves the nearest integer of x in the low bits
_TINY = 2.0**-20  # below, odd functions with f'(0) = 1 are x to float32's precision, and differences of 1 lose digits
_ROOT_HALF = 0x3FE6A09E667F3BCD  # the bits of 1/sqrt2
_ONE = 0x3FF << 52


# ---- bits ----


def _wide(x: Number) -> Number:
    return x.converted("double")


def _bits(x: Number) -> Val:
    return x.em.cast("bitcast", x.val, vector_type("i64", vector_width(x.val.type)))


def _of_bits(like: Number, bits: Val) -> Number:
    return Number(like.em, like.em.cast("bitcast", bits, like.val.type))


def _polynomial(coefficients: Sequence[float], x: Number) -> Number:
    """Returns c0 + c1 x + c2 x^2 + ..."""
    result = x.constant(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result.intrinsic("fma", x, coefficient)
    return result


def _nearest(x: Number) -> tuple[Number, Val]:
    """Returns the nearest integer of x, |x| < 2^51, as a float64 and in the low bits of an integer."""
    shifted = x + _ROUNDER
    return shifted - _ROUNDER, _bits(shifted)


def _flipped(x: Number, bit: Val) -> Number:
    """Returns a float32 with its sign changed where the lowest bit of a 32-bit integer is 1."""
    em = x.em
    sign = em.binary("shl", bit, literal(31, bit.type))
    return Number(em, em.cast("bitcast", em.binary("xor", em.cast("bitcast", x.val, bit.type), sign), x.val.type))


# ---- angles ----


def _quadrants(x: Number, high: Number | float, low: Number | float) -> tuple[Number, Val]:
    """Returns (f, k) with x = pi/2 (k + f) but for full turns, |f| <= 1/2 in float64, k in the low bits of an integer; 2/pi is
    `high` + `low`."""
    wide = _wide(x)
    shifted = wide.intrinsic("fma", high, _ROUNDER)
    return wide.intrinsic("fma", low, wide.intrinsic("fma", high, -(shifted - _ROUNDER))), _bits(shifted)


def _of_angle(x: Number, function: Callable[[Number, Val], Number]) -> Number:
    """Returns what a function makes of the quadrants of x.

    After Payne and Hanek ("Radian reduction for trigonometric functions", 1983): the bits of 2/pi that matter depend on x. Only
    a vector with an element above 2^46 asks which.
    """
    size = x.intrinsic("fabs")
    far = min(_QUADRANTS_ABOVE)

    def of_any_size() -> Number:
        high, low = (_wide(x).constant(part) for part in _QUADRANTS)
        for least, parts in _QUADRANTS_ABOVE.items():
            large = size > least
            high, low = (high.constant(part).where(large, before) for part, before in zip(parts, (high, low), strict=True))
        return function(*_quadrants(x, high, low))

    return function(*_quadrants(x, *_QUADRANTS)).unless_any(size > far, of_any_size)


def _sine_and_cosine(f: Number) -> tuple[Number, Number]:
    square = f * f
    return f * _polynomial(_SIN, square), _polynomial(_COS, square)


def _is_odd(f: Number, bits: Val) -> Truth:
    return Truth(f.em, f.em.compare("icmp", "ne", f.em.binary("and", bits, literal(1, bits.type)), literal(0, bits.type)))


def _wave(f: Number, bits: Val, quarter: int) -> Number:
    """Returns sin(pi/2 (k + f)) as a float32, k plus `quarter` in the low bits of an integer."""
    em, kind = f.em, vector_type("i32", vector_width(f.val.type))
    k = em.binary("add", em.cast("trunc", bits, kind), literal(quarter, kind))
    sine, cosine = _sine_and_cosine(f)
    return _flipped(cosine.where(_is_odd(f, k), sine).converted("float"), em.binary("lshr", k, literal(1, kind)))


def _tangent(f: Number, bits: Val) -> Number:
    odd = _is_odd(f, bits)
    sine, cosine = _sine_and_cosine(f)
    return (cosine.where(odd, sine) / (-sine).where(odd, cosine)).converted("float")


def sin(x: Number) -> Number:
    return _of_angle(x, lambda f, k: _wave(f, k, 0))


def cos(x: Number) -> Number:
    return _of_angle(x, lambda f, k: _wave(f, k, 1))


def tan(x: Number) -> Number:
    return _of_angle(x, _tangent)


def _half_turns(x: Number) -> tuple[Number, Val]:
    """Returns what `_quadrants` does for the argument pi x. From 2^24 on float32 numbers are even."""
    wide = _wide(x)
    product = (wide + wide).where(x.intrinsic("fabs") < 2.0**24, wide - wide)
    whole, bits = _nearest(product)
    return product - whole, bits


def sinpi(x: Number) -> Number:
    return _wave(*_half_turns(x), 0)


def cospi(x: Number) -> Number:
    return _wave(*_half_turns(x), 1)


def _angle(y: Number, x: Number) -> Number:
    """Returns the angle of a point with coordinates that are not negative, in float64."""
    steep = y > x
    less, more = x.where(steep, y), y.where(steep, x)
    ratio = less.constant(0.0).where(less.equals(0.0) & more.equals(0.0), less / more)
    ratio = less.constant(1.0).where(less.equals(math.inf) & more.equals(math.inf), ratio)
    flat = ratio * _polynomial(_ATAN, ratio * ratio)
    return (math.pi / 2 - flat).where(steep, flat)


def _signed(size: Number, sign: Number) -> Number:
    """Returns a float64 as a float32 with the sign of another."""
    return size.converted("float").intrinsic("copysign", sign)


def atan(x: Number) -> Number:
    wide = _wide(x.intrinsic("fabs"))
    return _signed(_angle(wide, wide.constant(1.0)), x)


def atan2(y: Number, x: Number) -> Number:
    angle = _angle(_wide(y.intrinsic("fabs")), _wide(x.intrinsic("fabs")))
    left = x.constant(1.0).intrinsic("copysign", x) < 0.0  # of -0 too
    return _signed((math.pi - angle).where(left, angle), y)


def _other_side(x: Number) -> Number:
    """sqrt(1 - x^2)"""
    return ((1.0 - x) * (1.0 + x)).intrinsic("sqrt")


def asin(x: Number) -> Number:
    wide = _wide(x.intrinsic("fabs"))
    return _signed(_angle(wide, _other_side(wide)), x)


def acos(x: Number) -> Number:
    wide = _wide(x.intrinsic("fabs"))
    angle = _angle(_other_side(wide), wide)
    return (math.pi - angle).where(x < 0.0, angle).converted("float")


# ---- powers and logarithms ----


def _exp2(x: Number) -> Number:
    """2^x in float64; the result is a float32 0 or infinity where |x| > 200."""
    x = x.constant(200.0).where(x > 200.0, x)
    x = x.constant(-200.0).where(x < -200.0, x)
    whole, bits = _nearest(x)
    r = x - whole
    mantissa = _polynomial(_EXP2, r).intrinsic("fma", r, 1.0)
    power = x.em.binary("shl", bits, literal(52, bits.type))
    return _of_bits(x, x.em.binary("add", _bits(mantissa), power))


def _exp(x: Number) -> Number:
    return _exp2(x * (1 / math.log(2.0)))


def _log2(x: Number) -> Number:
    """log2 of a float64 that is normal, zero, infinite or NaN: x = 2^e m, m from 1/sqrt2 to sqrt2."""
    em = x.em
    bits = _bits(x)

    def number(value: int) -> Val:
        return literal(value, bits.type)

    moved = em.binary("add", bits, number(_ONE - _ROOT_HALF))
    exponent = em.binary("or", em.binary("lshr", moved, number(52)), number(0x433 << 52))  # 2^52 + 1023 + e
    mantissa = em.binary("add", em.binary("and", moved, number((1 << 52) - 1)), number(_ROOT_HALF))
    f = _of_bits(x, mantissa) - 1.0
    result = _polynomial(_LOG2, f).intrinsic("fma", f, _of_bits(x, exponent) - (2.0**52 + 1023))
    result = result.where(x < math.inf, x)
    edge = x.constant(-math.inf).where(x.equals(0.0), math.nan)
    return result.where(x > 0.0, edge)


def _log(x: Number) -> Number:
    return _log2(x) * math.log(2.0)


def pow(x: Number, y: Number) -> Number:
    """x^y, by C's rules (C17, F.10.4.4): 1^y and x^0 are 1 even for NaN, and x < 0 takes integers y alone."""
    em, kind = x.em, vector_type("i32", vector_width(x.val.type))
    size = x.intrinsic("fabs")
    exponent = _wide(y) * _log2(_wide(size))
    one = x.equals(1.0) | y.equals(0.0) | (size.equals(1.0) & y.intrinsic("fabs").equals(math.inf))
    result = _exp2(exponent.constant(0.0).where(one, exponent)).converted("float")
    half = y * 0.5
    whole = y.intrinsic("rint").equals(y)
    odd = em.cast("zext", (whole & half.intrinsic("rint").differs(half)).val, kind)
    sign = em.binary("lshr", em.cast("bitcast", x.val, kind), literal(31, kind))
    result = _flipped(result, em.binary("and", sign, odd))
    fraction = (x < 0.0) & (x > -math.inf)
    return result.where(whole, x.constant(math.nan).where(fraction, result))


def exp10(x: Number) -> Number:
    return _exp2(_wide(x) * math.log2(10.0)).converted("float")


def expm1(x: Number) -> Number:
    wide = _wide(x)
    near = wide * (wide * 0.5 + 1.0)
    return near.where(wide.intrinsic("fabs") < _TINY, _exp(wide) - 1.0).converted("float")


def log10(x: Number) -> Number:
    return (_log2(_wide(x)) * math.log10(2.0)).converted("float")


def sinh(x: Number) -> Number:
    wide = _wide(x.intrinsic("fabs"))
    grown = _exp(wide)
    return _signed(wide.where(wide < _TINY, (grown - 1.0 / grown) * 0.5), x)


def cosh(x: Number) -> Number:
    grown = _exp(_wide(x))
    return ((grown + 1.0 / grown) * 0.5).converted("float")


def asinh(x: Number) -> Number:
    wide = _wide(x.intrinsic("fabs"))
    result = _log(wide + (wide * wide + 1.0).intrinsic("sqrt"))
    return _signed(wide.where(wide < _TINY, result), x)


def acosh(x: Number) -> Number:
    wide = _wide(x)
    result = _log(wide + ((wide - 1.0) * (wide + 1.0)).intrinsic("sqrt"))
    return wide.constant(math.nan).where(wide < 1.0, result).converted("float")


def atanh(x: Number) -> Number:
    wide = _wide(x.intrinsic("fabs"))
    result = _log((1.0 + wide) / (1.0 - wide)) * 0.5
    return _signed(wide.where(wide < _TINY, result), x)


def cbrt(x: Number) -> Number:
    return _signed(_exp2(_log2(_wide(x.intrinsic("fabs"))) * (1 / 3)), x)


def rcbrt(x: Number) -> Number:
    return _signed(_exp2(_log2(_wide(x.intrinsic("fabs"))) * (-1 / 3)), x)


# ---- lengths ----


def _length(*sides: Number) -> Number:
    """The square root of a sum of squares, in float64: infinite where a side is, even beside NaN."""
    wide = [_wide(side) for side in sides]
    total = wide[0] * wide[0]
    for side in wide[1:]:
        total = side.intrinsic("fma", side, total)
    for side in wide:
        total = side.constant(math.inf).where(side.intrinsic("fabs").equals(math.inf), total)
    return total.intrinsic("sqrt")


def _norm(*sides: Number) -> Number:
    return _length(*sides).converted("float")


def _inverse_norm(*sides: Number) -> Number:
    return (1.0 / _length(*sides)).converted("float")


FUNCTIONS: dict[str, Callable[..., Number]] = {
    "sin": sin, "cos": cos, "tan": tan, "sinpi": sinpi, "cospi": cospi, "asin": asin, "acos": acos, "atan": atan, "atan2": atan2,
    "pow": pow, "exp10": exp10, "expm1": expm1, "log10": log10, "sinh": sinh, "cosh": cosh, "asinh": asinh, "acosh": acosh,
    "atanh": atanh, "cbrt": cbrt, "rcbrt": rcbrt,
    **dict.fromkeys(("hypot", "norm3d", "norm4d"), _norm), **dict.fromkeys(("rhypot", "rnorm3d", "rnorm4d"), _inverse_norm),
}  # fmt: skip
"""Functions of float32 vectors or scalars, by the names that libdevice has for them."""
