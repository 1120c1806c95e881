"""Elementwise operations: a table from the operation's name to a NumPy function."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute
from kernelpack.ir.formats import Array, carrier, decode, encode, round_to
from kernelpack.ir.interpret.libdevice import extern_elementwise
from kernelpack.ir.types import F64, FloatType, IntegerType, PointerType, Type, bit_width, element_of

# ---- integers: carriers are signed, i1 is bool and as a signed number 0 or -1 ----


def signed(values: Array) -> Array:
    return np.negative(values.astype(np.int8)) if values.dtype == np.bool_ else values


def unsigned(values: Array) -> Array:
    if values.dtype == np.bool_:
        return values.astype(np.uint8)
    out: Array = values.view(np.dtype(f"uint{8 * values.dtype.itemsize}"))
    return out


def _back(values: Array, kind: Type) -> Array:
    """Returns integers in the carrier of their type."""
    if kind == IntegerType(1):
        values = values & 1
    out: Array = values.astype(carrier(kind), copy=False)
    return out


def _of_signed(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda kind, *operands: _back(function(*map(signed, operands)), kind)


def _of_unsigned(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda kind, *operands: _back(function(*map(unsigned, operands)), kind)


def _divide(a: Array, b: Array) -> Array:
    divisor = np.where(b == 0, 1, b).astype(b.dtype)
    return np.where(b == 0, 0, (a - np.fmod(a, divisor)) // divisor).astype(a.dtype)


def _remainder(a: Array, b: Array) -> Array:
    divisor = np.where(b == 0, 1, b).astype(b.dtype)
    return np.where(b == 0, a, np.fmod(a, divisor)).astype(a.dtype)


def _shift(function: Callable[..., Array], operand: Callable[[Array], Array]) -> Callable[..., Array]:
    def shift(kind: Type, values: Array, amounts: Array) -> Array:
        width = bit_width(kind)
        bits, distance = operand(values), unsigned(amounts)
        far = distance >= width
        shifted = function(bits, np.where(far, 0, distance).astype(bits.dtype))
        beyond = np.where(bits < 0, -1, 0)  # the sign, which is nothing for unsigned operands
        return _back(np.where(far, beyond.astype(bits.dtype), shifted), kind)

    return shift


def _multiply_high(a: Array, b: Array) -> Array:
    width = 8 * a.dtype.itemsize
    if width < 64:
        out: Array = ((a.astype(np.uint64) * b.astype(np.uint64)) >> np.uint64(width)).astype(a.dtype)
        return out
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    middle = a1 * b0 + (a0 * b0 >> half)
    high: Array = a1 * b1 + (middle >> half) + ((middle & low) + a0 * b1 >> half)
    return high


# ---- floats ----


def _rounded(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function whose float32 (for f64: float64) result rounds to the right result in every narrower type.

    True of + - * / and sqrt: float32 has more than twice the bits of f16, bf16 and fp8 (Figueroa 1995).
    """

    def apply(kind: FloatType, *operands: Array) -> Array:
        out = function(*operands)
        return out if out.dtype == carrier(kind) and kind.name in ("f16", "f32", "f64") else round_to(out, kind)

    return apply


def _through_f64(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda kind, *operands: round_to(function(*(values.astype(np.float64) for values in operands)), kind)


def _exact(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function whose result needs no rounding."""
    return lambda kind, *operands: function(*operands)


def _maximum(a: Array, b: Array) -> Array:
    return np.where(a == b, np.where(np.signbit(a), b, a), np.maximum(a, b))


def _minimum(a: Array, b: Array) -> Array:
    return np.where(a == b, np.where(np.signbit(a), a, b), np.minimum(a, b))


def _number(function: Callable[..., Array]) -> Callable[..., Array]:
    """The same, but NaN gives way to a number."""
    return lambda a, b: np.where(np.isnan(a), b, np.where(np.isnan(b), a, function(a, b)))


def _erf(values: Array) -> Array:
    out: Array = np.vectorize(math.erf, otypes=[np.float64])(values)
    return out


def _fma(kind: FloatType, a: Array, b: Array, c: Array) -> Array:
    """a * b + c, rounded once.

    Below f64 the product is exact in float64. The sum is rounded to odd there (Boldo and Melquiond, 2008), after which
    rounding to the type is as good as rounding the exact sum. f64 itself goes through fractions.
    """
    if kind == F64:
        out: Array = np.vectorize(_fma_f64, otypes=[np.float64])(a, b, c)
        return out
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = np.asarray(product + addend)
    bigger = total - product  # Knuth's two-sum: `error` is what the addition lost
    error = (product - (total - bigger)) + (addend - bigger)
    bits = total.view(np.int64)
    lost = (error != 0) & (bits & 1 == 0) & np.isfinite(total)
    step = np.where((error > 0) == (total > 0), 1, -1)
    return round_to(np.where(lost, bits + step, bits).view(np.float64), kind)


def _fma_f64(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c  # which has the right sign: both are zero, or cancel
    sign = -1.0 if exact < 0 else 1.0
    try:
        return sign * abs(float(exact))  # an exact value that rounds to zero keeps its sign
    except OverflowError:
        return sign * math.inf


SAME_TYPE: dict[str, Callable[..., Array]] = {
    "arith.addi": _of_unsigned(np.add),
    "arith.subi": _of_unsigned(np.subtract),
    "arith.muli": _of_unsigned(np.multiply),
    "arith.andi": _exact(np.bitwise_and),
    "arith.ori": _exact(np.bitwise_or),
    "arith.xori": _exact(np.bitwise_xor),
    "arith.maxsi": _of_signed(np.maximum),
    "arith.maxui": _of_unsigned(np.maximum),
    "arith.minsi": _of_signed(np.minimum),
    "arith.minui": _of_unsigned(np.minimum),
    "arith.divsi": _of_signed(_divide),
    "arith.divui": _of_unsigned(_divide),
    "arith.remsi": _of_signed(_remainder),
    "arith.remui": _of_unsigned(_remainder),
    "arith.shli": _shift(np.left_shift, unsigned),
    "arith.shrsi": _shift(np.right_shift, signed),
    "arith.shrui": _shift(np.right_shift, unsigned),
    "math.absi": _of_signed(np.abs),
    "tt.mulhiui": _of_unsigned(_multiply_high),
    "arith.addf": _rounded(np.add),
    "arith.subf": _rounded(np.subtract),
    "arith.mulf": _rounded(np.multiply),
    "arith.divf": _rounded(np.divide),
    "tt.precise_divf": _rounded(np.divide),
    "math.sqrt": _rounded(np.sqrt),
    "tt.precise_sqrt": _rounded(np.sqrt),
    "arith.remf": _exact(np.fmod),
    "arith.negf": _exact(np.negative),
    "math.absf": _exact(np.abs),
    "math.ceil": _exact(np.ceil),
    "math.floor": _exact(np.floor),
    "arith.maximumf": _exact(_maximum),
    "arith.minimumf": _exact(_minimum),
    "arith.maxnumf": _exact(_number(_maximum)),
    "arith.minnumf": _exact(_number(_minimum)),
    "math.fma": _fma,
    "math.cos": _through_f64(np.cos),
    "math.erf": _through_f64(_erf),
    "math.exp": _through_f64(np.exp),
    "math.exp2": _through_f64(np.exp2),
    "math.log": _through_f64(np.log),
    "math.log1p": _through_f64(np.log1p),
    "math.log2": _through_f64(np.log2),
    "math.rsqrt": _through_f64(lambda values: 1.0 / np.sqrt(values)),
    "math.sin": _through_f64(np.sin),
    "math.tanh": _through_f64(np.tanh),
}
"""Operations whose operands and result have one type: name to a function of (scalar type, carrier values)."""


# ---- comparisons ----

_INT_PREDICATES: dict[str, tuple[Callable[[Array], Array], Callable[..., Array]]] = {
    "eq": (signed, np.equal),
    "ne": (signed, np.not_equal),
    **{"s" + name: (signed, function) for name, function in
       (("lt", np.less), ("le", np.less_equal), ("gt", np.greater), ("ge", np.greater_equal))},
    **{"u" + name: (unsigned, function) for name, function in
       (("lt", np.less), ("le", np.less_equal), ("gt", np.greater), ("ge", np.greater_equal))},
}  # fmt: skip

_FLOAT_RELATIONS: dict[str, Callable[..., Array]] = {
    "eq": np.equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
    "ne": np.not_equal,
}


def _compare_ints(op: Operation, a: Array, b: Array) -> Array:
    view, relation = _INT_PREDICATES[op.attributes["predicate"]]
    return relation(view(a), view(b))


def _compare_floats(op: Operation, a: Array, b: Array) -> Array:
    predicate: str = op.attributes["predicate"]
    unordered = np.isnan(a) | np.isnan(b)
    match predicate:
        case "false" | "true":
            return np.full(unordered.shape, predicate == "true")
        case "ord":
            return ~unordered
        case "uno":
            return unordered
    holds = _FLOAT_RELATIONS[predicate[1:]](a, b)
    return holds | unordered if predicate[0] == "u" else holds & ~unordered


# ---- conversions ----


def _result(op: Operation) -> Type:
    return element_of(op.result.type)


def _source(op: Operation) -> Type:
    return element_of(op.operand.type)


def _round(op: Operation, values: Array) -> Array:
    kind = _result(op)
    assert isinstance(kind, FloatType)
    return round_to(values, kind, attribute(op, "rounding") if op.name == "tt.fp_to_fp" else "rtne")


def _int_to_float(op: Operation, values: Array) -> Array:
    """Rounds once: what float64 cannot hold of a 64-bit integer survives as a sticky bit, which is rounding to odd."""
    kind = _result(op)
    assert isinstance(kind, FloatType)
    if values.dtype.itemsize == 8 and kind != F64:
        low = values.dtype.type(0x7FF)
        big = (values >= 1 << 53) | (values < -(1 << 53)) if values.dtype == np.int64 else values >= 1 << 53
        sticky = np.where((values & low) != 0, low + values.dtype.type(1), low - low)
        values = np.where(big, (values & ~low) | sticky, values)
    return round_to(values.astype(np.float64), kind)


def _float_to_int(op: Operation, values: Array, lowest: int, beyond: int) -> Array:
    """Truncates, and saturates to [lowest, beyond)."""
    kind = _result(op)
    whole = np.trunc(values.astype(np.float64))
    inside = (whole >= lowest) & (whole < beyond)  # both are powers of two or 0: exact in float64
    wide = np.where(inside, whole, 0).astype(np.uint64 if lowest == 0 else np.int64)
    limited = np.where(whole >= beyond, wide.dtype.type(beyond - 1), np.where(whole < lowest, wide.dtype.type(lowest), wide))
    return _back(limited, kind)


def _bitcast(op: Operation, values: Array) -> Array:
    bits = encode(np.asarray(values), _source(op))
    return decode(bits, _result(op))


# ---- pointers: int64 addresses ----


def bytes_of(kind: Type) -> int:
    """Returns the bytes that a scalar takes in memory: one for i1."""
    return (bit_width(kind) + 7) // 8


def _dot_bytes(op: Operation, acc: Array, *factors: Array) -> Array:
    total = acc.astype(np.int64)
    for a, b in zip(factors[::2], factors[1::2], strict=True):
        for place in range(4):
            bytes_ = (
                (value >> 8 * place).astype(np.int8 if op.attributes[name] else np.uint8).astype(np.int64)
                for value, name in ((a, "a_signed"), (b, "b_signed"))
            )
            total = total + math.prod(bytes_)
    return total.astype(np.int32)


def _addptr(op: Operation, pointers: Array, offsets: Array) -> Array:
    kind = _result(op)
    assert isinstance(kind, PointerType)
    out: Array = pointers + signed(offsets).astype(np.int64) * np.int64(bytes_of(kind.pointee))
    return out


def _clamp(op: Operation, values: Array, low: Array, high: Array) -> Array:
    propagate = attribute(op, "propagate_nan") == "all"
    larger, smaller = (_maximum, _minimum) if propagate else (_number(_maximum), _number(_minimum))
    return smaller(larger(values, low), high)


def _select(op: Operation, condition: Array, yes: Array, no: Array) -> Array:
    return np.where(condition, yes, no)


_OTHERS: dict[str, Callable[..., Array]] = {
    "arith.cmpi": _compare_ints,
    "arith.cmpf": _compare_floats,
    "arith.select": _select,
    "arith.extsi": lambda op, values: signed(values).astype(carrier(_result(op))),
    "arith.extui": lambda op, values: unsigned(values).astype(carrier(_result(op))),
    "arith.trunci": lambda op, values: _back(values, _result(op)),
    "arith.extf": _round,
    "arith.truncf": _round,
    "tt.fp_to_fp": _round,
    "arith.sitofp": lambda op, values: _int_to_float(op, signed(values)),
    "arith.uitofp": lambda op, values: _int_to_float(op, unsigned(values)),
    "arith.fptosi": lambda op, values: _float_to_int(
        op, values, -(1 << bit_width(_result(op)) - 1), 1 << bit_width(_result(op)) - 1
    ),
    "arith.fptoui": lambda op, values: _float_to_int(op, values, 0, 1 << bit_width(_result(op))),
    "arith.bitcast": _bitcast,
    "tt.bitcast": _bitcast,
    "tt.addptr": _addptr,
    "tt.int_to_ptr": lambda op, values: unsigned(values).astype(np.int64),
    "tt.ptr_to_int": lambda op, values: _back(values, _result(op)),
    "tt.clampf": _clamp,
    "tt.extern_elementwise": extern_elementwise,
    "cpu.dot_bytes": _dot_bytes,
}


def _of_same_type(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda op, *operands: function(_result(op), *operands)


ELEMENTWISE: dict[str, Callable[..., Array]] = {
    **{name: _of_same_type(function) for name, function in SAME_TYPE.items()},
    **_OTHERS,
}
"""Every elementwise operation: name to a function of (operation, carrier values). Shapes come from the values alone."""
