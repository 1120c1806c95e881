"""Conversions between 8-bit floats, held as their bits, and float32: integer arithmetic, and one addition or multiplication."""

from __future__ import annotations

from kernelpack.ir.formats import bias, has_infinity, max_finite, min_normal, nan_bits
from kernelpack.ir.types import FloatType
from kernelpack.llvm.text import Emitter, Val, literal, suffix, vector_type, vector_width

_F32_BIAS, _F32_MANTISSA = 127, 23
_SIGN = 128


def decode(em: Emitter, value: Val, kind: FloatType) -> Val:
    """Returns 8-bit floats as float32, exactly."""
    width = vector_width(value.type)
    ints, floats = vector_type("i32", width), vector_type("float", width)
    bits = em.cast("zext", value, ints)
    magnitude = em.binary("and", bits, literal(_SIGN - 1, ints))
    # exponent and mantissa in float32's place make the value, but for the bias; subnormals too
    raw = em.cast("bitcast", em.binary("shl", magnitude, literal(_F32_MANTISSA - kind.mantissa, ints)), floats)
    scaled = em.cast("bitcast", em.binary("fmul", raw, literal(2.0 ** (_F32_BIAS - bias(kind)), floats)), ints)
    nan = nan_bits(kind)
    if has_infinity(kind):
        infinity = ((1 << kind.exponent) - 1) << kind.mantissa
        for predicate, special in (("eq", 0x7F800000), ("ugt", 0x7FC00000)):
            found = em.compare("icmp", predicate, magnitude, literal(infinity, ints))
            scaled = em.select(found, literal(special, ints), scaled)
    else:
        found = em.compare("icmp", "eq", magnitude if nan < _SIGN else bits, literal(nan, ints))
        scaled = em.select(found, literal(0x7FC00000, ints), scaled)
    sign = em.binary("shl", em.binary("and", bits, literal(_SIGN, ints)), literal(24, ints))
    return em.cast("bitcast", em.binary("or", scaled, sign), floats)


def encode(em: Emitter, value: Val, kind: FloatType) -> Val:
    """Returns float32 rounded to nearest even; what is too large becomes the largest finite value, NaN stays NaN."""
    width = vector_width(value.type)
    ints, floats = vector_type("i32", width), vector_type("float", width)
    magnitude = em.call(floats, f"llvm.fabs.{suffix(floats)}", [value])
    small_enough = em.compare("fcmp", "olt", magnitude, literal(max_finite(kind), floats))
    limited = em.select(small_enough, magnitude, literal(max_finite(kind), floats))
    bits = em.cast("bitcast", limited, ints)
    drop = _F32_MANTISSA - kind.mantissa
    odd = em.binary("and", em.binary("lshr", bits, literal(drop, ints)), literal(1, ints))
    rounded = em.binary("add", em.binary("add", bits, literal((1 << drop - 1) - 1, ints)), odd)
    rebias = (_F32_BIAS - bias(kind)) << kind.mantissa
    normal = em.binary("sub", em.binary("lshr", rounded, literal(drop, ints)), literal(rebias, ints))
    # beside this number, float32 has the steps of the format's subnormals: the addition rounds to them
    anchor = 2.0 ** (_F32_MANTISSA + 1 - bias(kind) - kind.mantissa)
    anchored = em.cast("bitcast", em.binary("fadd", limited, literal(anchor, floats)), ints)
    zero = em.cast("bitcast", literal(anchor, floats), ints)
    subnormal = em.binary("sub", anchored, zero)
    tiny = em.compare("fcmp", "olt", limited, literal(min_normal(kind), floats))
    code = em.select(tiny, subnormal, normal)
    sign = em.binary("and", em.binary("lshr", em.cast("bitcast", value, ints), literal(24, ints)), literal(_SIGN, ints))
    nan = nan_bits(kind)
    if nan == _SIGN:  # there is no -0
        sign = em.select(em.compare("icmp", "eq", code, literal(0, ints)), literal(0, ints), sign)
    code = em.binary("or", code, sign)
    is_nan = em.compare("fcmp", "uno", value, value)
    pattern = literal(nan, ints)
    with_sign = pattern if nan == _SIGN else em.binary("or", sign, pattern)
    return em.cast("trunc", em.select(is_nan, with_sign, code), vector_type("i8", width))
