"""What the functions of libdevice compute, in NumPy: floats in float64, or by the C library where NumPy has no such function."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np

from kernelpack.ir.core import Operation
from kernelpack.ir.formats import Array, carrier, round_to
from kernelpack.ir.libdevice import CONVERSIONS, PREFIX, SYMBOLS, Variant
from kernelpack.ir.types import FloatType, element_of

_SQRT2, _LOG10 = math.sqrt(2.0), math.log(10.0)


def extern_elementwise(op: Operation, *operands: Array) -> Array:
    """Returns the result of a tt.extern_elementwise. Raises KeyError for a symbol that is not known."""
    variant = SYMBOLS[op.attributes["symbol"]]
    kind = element_of(op.result.type)
    source, *_ = op.operands
    floats = isinstance(element_of(source.type), FloatType) or variant.name in ("jn", "yn")
    if variant.name == "mulhi":
        return _high(operands[0], operands[1], not variant.arguments[0].startswith("u"))
    if variant.name in _ON_BITS:
        return np.asarray(_ON_BITS[variant.name](*operands)).astype(carrier(kind))
    if variant.name in CONVERSIONS:
        return _converted(variant, np.asarray(operands[0]))
    if variant.name[-3:] in ("_rz", "_rd", "_ru") and variant.name not in _FUNCTIONS:
        return _directed(variant.name[:-3], variant.name[-2:], operands)
    values = [_widened(value, name, floats) for value, name in zip(operands, variant.arguments, strict=True)]
    symbol = variant.symbol.removeprefix(PREFIX)
    result = np.asarray(_meaning(symbol if symbol in _FUNCTIONS else variant.name)(*values))
    return round_to(result, kind) if isinstance(kind, FloatType) else result.astype(np.int64).astype(carrier(kind))


def _widened(values: Array, kind: str, floats: bool) -> Array:
    """Returns floats as float64 and integers as Python's, which do not wrap."""
    if kind.startswith("fp"):
        return values.astype(np.float64)
    values = np.asarray(values)
    signed = values.view(f"uint{8 * values.dtype.itemsize}") if kind.startswith("u") else values
    return signed if floats else signed.astype(object)


def _meaning(name: str) -> Callable[..., Any]:
    plain = name.removesuffix("_rn")
    known = _FUNCTIONS.get(name) or _FUNCTIONS.get(plain)
    return known if known is not None else _of_c(name)


@functools.cache
def _of_c(name: str) -> Callable[..., Any]:
    """Returns a function of the C library for float64."""
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    function = getattr(library, name)
    function.restype = ctypes.c_double
    integer_first = name in ("jn", "yn")

    def apply(*values: float) -> float:
        first = ctypes.c_int(int(values[0])) if integer_first else ctypes.c_double(values[0])
        return float(function(first, *map(ctypes.c_double, values[1:])))

    return np.vectorize(apply, otypes=[np.float64])


_EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda r, x, y: x + y - r,
    "sub": lambda r, x, y: x - y - r,
    "mul": lambda r, x, y: x * y - r,
    "div": lambda r, x, y: x / y - r,
    "fma": lambda r, x, y, z: x * y + z - r,
    "rcp": lambda r, x: 1 / x - r,
    "sqrt": lambda r, x: x - r * r,
}
"""What is left of the exact value, or something of its sign, when a result is taken away."""


def _directed(name: str, mode: str, operands: Sequence[Array]) -> Array:
    """Rounds toward zero (rz), down (rd) or up (ru): the nearest value, moved where the exact one lies on its other side."""
    kind = np.asarray(operands[0]).dtype.type

    def apply(*values: Any) -> Any:
        near = kind(_FUNCTIONS[name](*(np.float64(value) for value in values)))
        if not all(np.isfinite(value) for value in values) or (name in ("div", "rcp") and values[-1] == 0) or near != near:
            return near
        left = _EXACT[name](*(Fraction(float(value)) for value in (near, *values))) if np.isfinite(near) else -near
        return _moved(near, left, mode)

    return _each(apply, kind)(*operands)


def _moved(near: Any, left: Any, mode: str) -> Any:
    up = mode == "ru" or (mode == "rz" and np.signbit(near))
    moves = left > 0 if up else left < 0
    return np.nextafter(near, type(near)(np.inf if up else -np.inf)) if moves else near


def _converted(variant: Variant, values: Array) -> Array:
    """Converts floats to integers, or float64 and integers to floats, rounded as the function's name ends."""
    mode, bits = variant.name[-2:], int(variant.result[-2:])
    if variant.result.startswith("i"):
        whole = {"rn": np.rint, "rd": np.floor, "ru": np.ceil, "rz": np.trunc}[mode](values)
        small = (variant.arguments[0], bits) == ("fp32", 32)
        return _saturated(whole, bits, "2u" not in variant.name, 0 if small else -(1 << bits - 1)).astype(f"int{bits}")
    kind = np.float32 if bits == 32 else np.float64
    if variant.arguments[0].startswith("u"):
        values = _bits(values)

    def apply(value: Any, rounded: float) -> Any:
        near = kind(rounded)
        if mode == "rn" or not math.isfinite(value):
            return near
        return _moved(near, Fraction(value) - Fraction(float(near)) if np.isfinite(near) else -near, mode)

    return _each(apply, kind)(values, values.astype(kind))


def _each(function: Callable[..., Any], kind: type = np.float64) -> Callable[..., Array]:
    return np.vectorize(function, otypes=[kind])


def _round(values: Array) -> Array:
    """Rounds half away from zero."""
    return np.where(np.abs(values) < 2.0**52, np.copysign(np.floor(np.abs(values) + 0.5), values), values)


def _saturated(values: Array, bits: int, signed: bool, nan: int) -> Array:
    """Returns whole numbers as integers of so many bits; NaN gives `nan`."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def convert(value: float) -> int:
        if value != value:
            return nan
        limited = high if value >= high else low if value <= low else int(value)
        return limited - (1 << bits) if not signed and limited >> bits - 1 else limited

    return _each(convert, np.int64)(values)


def _wrapped(bits: int) -> Callable[[Callable[..., int]], Callable[..., Array]]:
    def wrap(value: int) -> int:
        low = int(value) & (1 << bits) - 1
        return low - (1 << bits) if low >> bits - 1 else low

    return lambda function: _each(lambda *values: wrap(function(*map(int, values))), np.int64)


def _scaled_erfc(x: float) -> float:
    if x < 25:
        return math.exp(x * x) * math.erfc(x) if x > -26 else math.inf
    return 1 / (x * math.sqrt(math.pi)) * (1 - 1 / (2 * x * x) + 3 / (4 * x**4))


def _bessel(order: int) -> Callable[..., Any]:
    """The modified Bessel functions of the first kind by their power series (DLMF 10.25.2)."""

    def apply(x: float) -> float:
        if math.isinf(x) or math.isnan(x):
            return x * x if order == 0 else x
        term = total = (x / 2) ** order
        k = 1
        while abs(term) > 1e-18 * abs(total) and k < 2000:
            term *= (x / 2) ** 2 / (k * (k + order))
            total += term
            k += 1
        return total

    return np.vectorize(apply, otypes=[np.float64])


def _probit(p: float) -> float:
    if 0 < p < 1:
        return NormalDist().inv_cdf(p)
    return -math.inf if p == 0 else math.inf if p == 1 else math.nan


def _erfcinv(y: float) -> float:
    return -_probit(y / 2) / _SQRT2 if y == y else y


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(np, other)
        for name, other in (
            ("acos", "arccos"), ("acosh", "arccosh"), ("asin", "arcsin"), ("asinh", "arcsinh"), ("atan", "arctan"),
            ("atanh", "arctanh"), ("atan2", "arctan2"), ("pow", "power"), ("nearbyint", "rint"), ("fabs", "abs"),
            ("fmod", "fmod"), ("cbrt", "cbrt"), ("ceil", "ceil"), ("cos", "cos"), ("cosh", "cosh"), ("exp", "exp"),
            ("exp2", "exp2"), ("expm1", "expm1"), ("floor", "floor"), ("log", "log"), ("log10", "log10"),
            ("log1p", "log1p"), ("log2", "log2"), ("rint", "rint"), ("sin", "sin"), ("sinh", "sinh"), ("sqrt", "sqrt"),
            ("tan", "tan"), ("tanh", "tanh"), ("trunc", "trunc"), ("copysign", "copysign"), ("hypot", "hypot"),
            ("abs", "abs"), ("add", "add"), ("sub", "subtract"), ("mul", "multiply"), ("div", "divide"),
        )
    },
    "fast_dividef": np.divide,
    **{f"fast_{name}f": getattr(np, name) for name in ("sin", "cos", "tan", "tanh", "exp", "log", "log2", "log10")},
    "fast_exp10f": lambda x: np.exp(x * _LOG10),
    "fast_powf": np.power,
    "erf": _each(math.erf),
    "erfc": _each(math.erfc),
    "erfcx": _each(_scaled_erfc),
    "erfinv": _each(lambda x: _probit((x + 1) / 2) / _SQRT2),
    "erfcinv": _each(_erfcinv),
    "normcdf": _each(lambda x: math.erfc(-x / _SQRT2) / 2),
    "normcdfinv": _each(_probit),
    "cyl_bessel_i0": _bessel(0),
    "cyl_bessel_i1": _bessel(1),
    "cospi": lambda x: np.cos(np.pi * np.fmod(x, 2)),
    "sinpi": lambda x: np.sin(np.pi * np.fmod(x, 2)),
    "exp10": lambda x: np.power(10.0, x),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "rcp": lambda x: 1 / x,
    "norm3d": lambda x, y, z: np.hypot(np.hypot(x, y), z),
    "rnorm3d": lambda x, y, z: 1 / np.hypot(np.hypot(x, y), z),
    "norm4d": lambda x, y, z, w: np.hypot(np.hypot(x, y), np.hypot(z, w)),
    "rnorm4d": lambda x, y, z, w: 1 / np.hypot(np.hypot(x, y), np.hypot(z, w)),
    "fma": lambda x, y, z: x * y + z,
    "round": _round,
    "saturatef": lambda x: np.where(np.isnan(x), 0.0, np.clip(x, 0.0, 1.0)),
    "finitef": np.isfinite,
    "isfinited": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "signbit": np.signbit,
    "ilogb": lambda x: np.where(np.isinf(x), 2**31 - 1, np.where(np.isfinite(x) & (x != 0), np.frexp(x)[1] - 1, -(2**31))),
    "ldexp": np.ldexp,
    "scalbn": np.ldexp,
    "llrint": lambda x: _saturated(np.rint(x), 64, True, -(1 << 63)),
    "llround": lambda x: _saturated(_round(x), 64, True, -(1 << 63)),
    "byte_perm": _wrapped(32)(
        lambda x, y, s: sum(((((y & 0xFFFFFFFF) << 32 | (x & 0xFFFFFFFF)) >> 8 * (s >> 4 * at & 7)) & 0xFF) << 8 * at for at in range(4))
    ),
    "mul24": _wrapped(32)(lambda x, y: _low24(x) * _low24(y)),
    "umul24": _wrapped(32)(lambda x, y: (x & 0xFFFFFF) * (y & 0xFFFFFF)),
    "sad": _wrapped(32)(lambda x, y, z: abs(x - y) + z),
    "hadd": _wrapped(32)(lambda x, y: x + y >> 1),
    "rhadd": _wrapped(32)(lambda x, y: x + y + 1 >> 1),
}  # fmt: skip


def _low24(value: int) -> int:
    low = value & 0xFFFFFF
    return low - (1 << 24) if low >> 23 else low


def _bits(values: Array) -> Array:
    return np.asarray(values).view(f"uint{8 * np.asarray(values).dtype.itemsize}")


def _upper(values: Array) -> Array:
    """Returns float64 values without their lower 32 bits, and zero for subnormal ones (PTX ISA, rcp.approx.ftz.f64)."""
    cut = (_bits(values) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)
    return np.where(np.abs(cut) < 2.0**-1022, np.copysign(0.0, cut), cut)


def _of_bits(function: Callable[[int, int], int]) -> Callable[..., Array]:
    """A function of an integer's bits and their number."""

    def apply(values: Array) -> Array:
        width = 8 * np.asarray(values).dtype.itemsize
        counted = _each(lambda value: function(int(value), width), np.uint64)(_bits(values))
        return counted.astype(f"uint{width}").view(f"int{width}")

    return apply


def _high(x: Array, y: Array, signed: bool) -> Array:
    """Returns the upper half of a product."""
    width = 8 * np.asarray(x).dtype.itemsize
    views = (np.asarray(x), np.asarray(y)) if signed else (_bits(x), _bits(y))
    product = _wrapped(width)(lambda a, b: a * b >> width)(*(view.astype(object) for view in views))
    return product.astype(np.asarray(x).dtype)


_ON_BITS: dict[str, Callable[..., Array]] = {
    "brev": _of_bits(lambda value, width: int(f"{value:0{width}b}"[::-1], 2)),
    "clz": _of_bits(lambda value, width: width - value.bit_length()),
    "ffs": _of_bits(lambda value, width: (value & -value).bit_length()),
    "popc": _of_bits(lambda value, width: value.bit_count()),
    "nextafter": np.nextafter,
    "hiloint2double": lambda high, low: (_bits(high).astype(np.uint64) << np.uint64(32) | _bits(low).astype(np.uint64)).view(
        np.float64
    ),
    "double2loint": lambda x: (_bits(x) & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32),
    "double2hiint": lambda x: (_bits(x) >> np.uint64(32)).astype(np.uint32).view(np.int32),
    "rcp64h": lambda x: _upper(1 / _upper(np.asarray(x))),
    "int_as_float": lambda x: np.asarray(x).view(np.float32),
    "uint_as_float": lambda x: np.asarray(x).view(np.float32),
    "float_as_int": lambda x: np.asarray(x).view(np.int32),
    "float_as_uint": lambda x: np.asarray(x).view(np.int32),
    "longlong_as_double": lambda x: np.asarray(x).view(np.float64),
    "double_as_longlong": lambda x: np.asarray(x).view(np.int64),
}
"""Functions of the operands' own types."""
