"""Elementwise mathematics: `tl.math.*`, most of it also as `tl.*` and as methods of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelpack.errors import CompilationError
from kernelpack.kernel.builtin import Generator, builtin, member
from kernelpack.kernel.types import dtype, float32, float64, int32, int64, uint32, uint64
from kernelpack.kernel.values import tensor
from kernelpack.semantics import operators

__all__ = [
    "abs",
    "ceil",
    "cos",
    "div_rn",
    "erf",
    "exp",
    "exp2",
    "fdiv",
    "floor",
    "fma",
    "log",
    "log1p",
    "log2",
    "rsqrt",
    "sin",
    "sqrt",
    "sqrt_rn",
    "tanh",
    "umulhi",
]

FLOATS = (float32, float64)


def _check(name: str, value: tensor, allowed: tuple[dtype, ...]) -> tensor:
    if value.dtype not in allowed:
        cure = "cast first: x.to(tl.float32)" if float32 in allowed else None
        cure = "load what it points to first: tl.load(p)" if value.dtype.is_ptr() else cure
        raise CompilationError(f"tl.{name} takes {' or '.join(map(str, allowed))}, not {value.dtype}", cure=cure)
    return value


def _unary(name: str, operation: str, meaning: str, allowed: tuple[dtype, ...] = FLOATS) -> Callable[..., tensor]:
    def function(x: Any, *, _generator: Generator) -> tensor:
        b = _generator.builder
        value = _check(name, operators.to_tensor(b, x), allowed)
        return tensor(b.value(operation, [value.handle]), value.type)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Returns {meaning}, elementwise, for {' and '.join(map(str, allowed))}."
    return member(builtin(function))


exp = _unary("exp", "math.exp", "e to the power of x")
exp2 = _unary("exp2", "math.exp2", "2 to the power of x")
log = _unary("log", "math.log", "the natural logarithm")
log2 = _unary("log2", "math.log2", "the logarithm to base 2")
log1p = _unary("log1p", "math.log1p", "the natural logarithm of 1 + x")
sin = _unary("sin", "math.sin", "the sine")
cos = _unary("cos", "math.cos", "the cosine")
tanh = _unary("tanh", "math.tanh", "the hyperbolic tangent")
erf = _unary("erf", "math.erf", "the error function")
sqrt = _unary("sqrt", "math.sqrt", "the square root, perhaps approximate")
rsqrt = _unary("rsqrt", "math.rsqrt", "one over the square root")
floor = _unary("floor", "math.floor", "the largest whole number not above x")
ceil = _unary("ceil", "math.ceil", "the smallest whole number not below x")
sqrt_rn = _unary("sqrt_rn", "tt.precise_sqrt", "the square root rounded to nearest even", (float32,))


@member
@builtin
def abs(x: Any, *, _generator: Generator) -> tensor:
    """Returns the absolute value, elementwise."""
    b = _generator.builder
    value = operators.to_tensor(b, x)
    if value.dtype.is_ptr():
        raise CompilationError("tl.abs takes numbers, not pointers")
    if value.dtype.is_int_unsigned():
        return value
    return tensor(b.value("math.absf" if value.dtype.is_floating() else "math.absi", [value.handle]), value.type)


@builtin
def fma(x: Any, y: Any, z: Any, *, _generator: Generator) -> tensor:
    """Returns x * y + z with one rounding, elementwise, for floats."""
    b = _generator.builder
    values = [operators.to_tensor(b, value) for value in (x, y, z)]
    values[0], values[1] = operators.operands(b, "tl.fma", values[0], values[1])
    values[2], values[0] = operators.operands(b, "tl.fma", values[2], values[0])
    values[2], values[1] = operators.operands(b, "tl.fma", values[2], values[1])
    values = list(operators.broadcast(b, *values))
    if not values[0].dtype.is_floating():
        raise CompilationError(f"tl.fma takes floats, not {values[0].dtype}", cure="write x * y + z")
    return tensor(b.value("math.fma", [value.handle for value in values]), values[0].type)


@builtin
def fdiv(x: Any, y: Any, ieee_rounding: bool = False, *, _generator: Generator) -> tensor:
    """Returns x / y for floats, in the operands' own type: halves stay halves."""
    b = _generator.builder
    left, right = operators.to_tensor(b, x), operators.to_tensor(b, y)
    if not left.dtype.is_floating() or not right.dtype.is_floating():
        raise CompilationError(f"tl.fdiv takes floats, not {left.dtype} and {right.dtype}", cure="write x / y")
    left, right = operators.operands(b, "tl.fdiv", left, right)
    return tensor(b.value("arith.divf", [left.handle, right.handle]), left.type)


def _checked_pair(name: str, generator: Generator, x: Any, y: Any, allowed: tuple[dtype, ...]) -> tuple[tensor, tensor]:
    b = generator.builder
    left, right = (_check(name, operators.to_tensor(b, value), allowed) for value in (x, y))
    return operators.operands(b, f"tl.{name}", left, right)


@builtin
def div_rn(x: Any, y: Any, *, _generator: Generator) -> tensor:
    """Returns x / y rounded to nearest even, for float32."""
    left, right = _checked_pair("div_rn", _generator, x, y, (float32,))
    return tensor(_generator.builder.value("tt.precise_divf", [left.handle, right.handle]), left.type)


@builtin
def umulhi(x: Any, y: Any, *, _generator: Generator) -> tensor:
    """Returns the upper half of the bits of an unsigned product."""
    left, right = _checked_pair("umulhi", _generator, x, y, (int32, int64, uint32, uint64))
    return tensor(_generator.builder.value("tt.mulhiui", [left.handle, right.handle]), left.type)
