"""Number formats: rounding to every scalar type and its bit patterns, exact, on NumPy arrays; the normal form of constants."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeAlias

from kernelpack.ir.types import BF16, F8E4M3B15, F16, F32, F64, FloatType, IntegerType, Type
from kernelpack.lazy import LazyModule

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]
else:
    np, Array = LazyModule("numpy"), Any

_NATIVE = {F16: "float16", F32: "float32", F64: "float64"}


def carrier(kind: Type) -> np.dtype[Any]:
    """Returns the NumPy type that holds values of a scalar type.

    Integers are held signed, i1 as bool, pointers as int64 addresses, bf16 and fp8 as float32 that never holds anything
    the format cannot. Raises TypeError for a type without one.
    """
    if isinstance(kind, IntegerType):
        if kind.width == 1:
            return np.dtype(np.bool_)
        if kind.width in (8, 16, 32, 64):
            return np.dtype(f"int{kind.width}")
        raise TypeError(f"{kind} has no NumPy type")
    if isinstance(kind, FloatType):
        return np.dtype(_NATIVE.get(kind, "float32"))
    return np.dtype(np.int64)


def bias(kind: FloatType) -> int:
    """Returns what is added to exponents before they are stored. The FNUZ formats have one more than IEEE's."""
    if kind == F8E4M3B15:
        return 15
    return (1 << kind.exponent - 1) - (0 if kind.name.endswith("UZ") else 1)


def has_infinity(kind: FloatType) -> bool:
    return "FN" not in kind.name and kind != F8E4M3B15


def nan_bits(kind: FloatType) -> int:
    """Returns the pattern of NaN: FN formats and F8E4M3B15 have the last one only, FNUZ formats that of -0."""
    if kind.name.endswith("UZ"):
        return 1 << kind.width - 1
    if not has_infinity(kind):
        return (1 << kind.width - 1) - 1
    return ((1 << kind.exponent) - 1 << kind.mantissa) | (1 << kind.mantissa - 1)


def max_finite(kind: FloatType) -> float:
    """Returns the largest finite value of a format."""
    if has_infinity(kind):
        top, fraction = (1 << kind.exponent) - 2, (1 << kind.mantissa) - 1
    else:  # all patterns are finite but the very last one of FN formats
        top, fraction = (1 << kind.exponent) - 1, (1 << kind.mantissa) - (1 if kind.name.endswith("UZ") else 2)
    return float((1.0 + fraction * 2.0**-kind.mantissa) * 2.0 ** (top - bias(kind)))


def min_normal(kind: FloatType) -> float:
    """Returns the smallest positive normal value of a format."""
    return float(2.0 ** (1 - bias(kind)))


def round_to(values: npt.ArrayLike, kind: FloatType, rounding: str = "rtne") -> Array:
    """Rounds floats once to a format: to nearest even (`rtne`) or toward zero (`rtz`). Returns an array of its carrier.

    What is too large becomes infinity (rtne) or the largest finite value (rtz). The fp8 formats always give the largest
    finite value, as the conversions of GPUs do (PTX ISA, cvt.satfinite). NaN stays NaN.
    """
    source = np.asarray(values)
    with np.errstate(all="ignore"):
        if rounding == "rtne" and kind in _NATIVE:
            return source.astype(_NATIVE[kind])
        if rounding == "rtne" and kind == BF16 and source.dtype == np.float32:
            return _round_to_bf16(source)
        exact = source.astype(np.float64)
        _, exponent = np.frexp(exact)  # |exact| is in [2**(exponent - 1), 2**exponent)
        least = 1 - bias(kind)
        quantum = np.maximum(exponent - 1, least) - kind.mantissa
        whole = np.ldexp(exact, -quantum)  # exact: a shift of the exponent
        rounded = np.ldexp(np.rint(whole) if rounding == "rtne" else np.trunc(whole), quantum)
        largest = max_finite(kind)
        overflows = np.abs(rounded) > largest
        saturates = kind.width == 8 or (rounding == "rtz" and np.isfinite(exact))
        limit = np.where(saturates, largest, np.inf)
        special = np.isnan(exact) | (exact == 0)
        return np.where(special, exact, np.where(overflows, np.copysign(limit, exact), rounded)).astype(carrier(kind))


def _round_to_bf16(values: Array) -> Array:
    """The same for float32 to bf16, by integer arithmetic because it is the most frequent rounding of all."""
    bits = values.view(np.uint32)
    nearest = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    quiet = bits | np.uint32(0x400000)
    kept: Array = np.where(np.isnan(values), quiet, nearest) & np.uint32(0xFFFF0000)
    return kept.view(np.float32)


def encode(values: Array, kind: Type) -> Array:
    """Returns the bit patterns of carrier values as unsigned integers of the type's width (i1: uint8 of 0 or 1)."""
    if isinstance(kind, FloatType) and kind not in _NATIVE:
        if kind == BF16:
            return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        magnitudes = _fp8_magnitudes(kind)
        bits = np.searchsorted(magnitudes, np.abs(np.nan_to_num(values, nan=0.0, posinf=None, neginf=None)))
        negative = np.signbit(values) & ((bits != 0) | (nan_bits(kind) != 128))  # FNUZ formats have no -0
        nan = nan_bits(kind)
        bits = np.where(np.isnan(values), nan & 127, bits)
        return np.where(negative | (np.isnan(values) & (nan == 128)), bits | 128, bits).astype(np.uint8)
    if values.dtype == np.bool_:
        return values.astype(np.uint8)
    same_width: Array = values.view(np.dtype(f"uint{values.dtype.itemsize * 8}"))
    return same_width


def decode(bits: Array, kind: Type) -> Array:
    """Returns the carrier values of bit patterns: the inverse of `encode`."""
    if isinstance(kind, FloatType) and kind not in _NATIVE:
        if kind == BF16:
            return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
        magnitudes = _fp8_magnitudes(kind)
        table: Array = np.full(128, np.nan, np.float32)
        table[: len(magnitudes)] = magnitudes
        magnitude = table[bits & 127]
        signed: Array = np.where(bits >= 128, np.negative(magnitude), magnitude)
        return np.where(bits == 128, np.float32(np.nan), signed) if nan_bits(kind) == 128 else signed
    if kind == IntegerType(1):
        return np.not_equal(bits, 0)
    values: Array = bits.view(carrier(kind))
    return values


@functools.cache
def _fp8_magnitudes(kind: FloatType) -> Array:
    """Returns the positive values of an 8-bit format in order of their bits, infinity included."""
    bits = np.arange(128)
    exponent, mantissa = bits >> kind.mantissa, bits & (1 << kind.mantissa) - 1
    hidden = np.where(exponent > 0, 1 << kind.mantissa, 0)
    values = np.ldexp((mantissa + hidden).astype(np.float32), np.maximum(exponent, 1) - bias(kind) - kind.mantissa)
    finite = int(np.searchsorted(values, max_finite(kind), side="right"))
    return np.append(values[:finite], np.float32(np.inf)) if has_infinity(kind) else values[:finite]


def normal(value: bool | int | float, kind: Type) -> bool | int | float:
    """Returns a constant of scalar type `kind` in its only form: i1 as bool, integers signed, floats rounded to the type.

    Raises TypeError where the value has no such form (a fraction for an integer type, a type that is not a number).
    """
    if isinstance(kind, FloatType):
        return float(round_to(float(value), kind)) if kind != F64 else float(value)
    if not isinstance(kind, IntegerType):
        raise TypeError(f"there are no constants of type {kind}")
    if int(value) != value:
        raise TypeError(f"{value} is not an integer")
    if kind.width == 1:
        return bool(int(value) & 1)
    wrapped = int(value) & (1 << kind.width) - 1
    return wrapped - (1 << kind.width) if wrapped >> kind.width - 1 else wrapped
