"""The functions that kernels are made of: programs, tiles, memory, matrix products, reductions. Names as in triton.language."""

from __future__ import annotations

import enum
from typing import Any

from kernelpack.errors import CompilationError, CompileTimeAssertionFailure
from kernelpack.kernel.aggregates import aggregate
from kernelpack.kernel.builtin import METHODS, Generator, builtin, member
from kernelpack.kernel.jit import constexpr_function
from kernelpack.kernel.structured_types import constexpr_type
from kernelpack.kernel.types import (
    bfloat16,
    block_type,
    describe,
    dtype,
    float8e4b8,
    float8e4b15,
    float8e4nv,
    float8e5,
    float8e5b16,
    float16,
    float32,
    float64,
    int1,
    int8,
    int16,
    int32,
    int64,
    pointer_type,
    uint8,
    uint16,
    uint32,
    uint64,
    void,
)
from kernelpack.kernel.values import block_pointer, constexpr, tensor, unwrap
from kernelpack.language.loops import condition, range, static_range
from kernelpack.language.shapes import broadcast, broadcast_to, dims_of, expand_dims, join, permute, reshape, split, trans, view
from kernelpack.semantics import block_pointers, byte_products, memory, operators, tiles
from kernelpack.semantics.overflow import checked_arithmetic

__all__ = [
    "PropagateNan",
    "add",
    "arange",
    "associative_scan",
    "assume",
    "bfloat16",
    "block_type",
    "broadcast",
    "broadcast_to",
    "cast",
    "clamp",
    "condition",
    "constexpr",
    "constexpr_type",
    "debug_barrier",
    "dot",
    "dtype",
    "expand_dims",
    "float8e4b8",
    "float8e4b15",
    "float8e4nv",
    "float8e5",
    "float8e5b16",
    "float16",
    "float32",
    "float64",
    "full",
    "int1",
    "int8",
    "int16",
    "int32",
    "int64",
    "join",
    "load",
    "max_constancy",
    "max_contiguous",
    "maximum",
    "minimum",
    "mul",
    "multiple_of",
    "num_programs",
    "permute",
    "pointer_type",
    "program_id",
    "range",
    "reduce",
    "reshape",
    "split",
    "static_assert",
    "static_print",
    "static_range",
    "store",
    "sub",
    "tensor",
    "to_tensor",
    "trans",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "view",
    "void",
    "where",
    "zeros",
    "zeros_like",
]


CONSTEXPR_0, CONSTEXPR_1 = constexpr(0), constexpr(1)
"""Defaults of compile-time parameters, by names that kernels import."""
_aggregate = aggregate
"""What code written for Triton 3.4 to 3.6 calls it."""
_unwrap_if_constexpr = constexpr_function(unwrap)
"""What kernels of others call for the value of what may be a constexpr."""


class PropagateNan(enum.Enum):
    """Whether maximum, minimum and clamp give NaN when any operand is NaN (ALL), or only when both are (NONE)."""

    NONE = 0
    ALL = 0xFFFF


# ---- programs ----


@builtin
def program_id(axis: int, *, _generator: Generator) -> tensor:
    """Returns the index of this program along grid axis 0, 1 or 2, an int32."""
    return tiles.program(_generator.builder, "tt.get_program_id", axis)


@builtin
def num_programs(axis: int, *, _generator: Generator) -> tensor:
    """Returns the number of programs along grid axis 0, 1 or 2, an int32."""
    return tiles.program(_generator.builder, "tt.get_num_programs", axis)


# ---- making tiles ----


@builtin
def arange(start: int, end: int, *, _generator: Generator) -> tensor:
    """Returns [start, end) as int32, end excluded. Both are compile-time, their difference a power of two."""
    return tiles.arange(_generator.builder, start, end)


@builtin
def full(shape: Any, value: Any, dtype: dtype, *, _generator: Generator) -> tensor:
    """Returns a tile of `shape` and `dtype` filled with a number or a scalar."""
    return tiles.full(_generator.builder, dims_of((shape,)), value, dtype)


@builtin
def zeros(shape: Any, dtype: dtype, *, _generator: Generator) -> tensor:
    """Returns a tile of zeros."""
    return tiles.full(_generator.builder, dims_of((shape,)), 0, dtype)


@builtin
def zeros_like(input: tensor, *, _generator: Generator) -> tensor:
    """Returns zeros of the shape and type of `input`."""
    return tiles.full(_generator.builder, input.shape, 0, input.dtype)


@builtin
def to_tensor(x: Any, *, _generator: Generator) -> tensor:
    """Returns a number as a scalar: int32 (or what it needs), float32, int1."""
    return operators.to_tensor(_generator.builder, x)


# ---- types ----

_dtype = dtype  # the class, where a parameter of the same name hides it


@constexpr_function
def get_int_dtype(bitwidth: int, signed: bool) -> dtype:
    """Returns the integer type of so many bits: 1 (always unsigned), 8, 16, 32 or 64."""
    return _dtype("int1" if bitwidth == 1 else f"{'' if signed else 'u'}int{bitwidth}")


@member
@builtin
def cast(
    input: Any, dtype: dtype, fp_downcast_rounding: str | None = None, bitcast: bool = False, *, _generator: Generator
) -> tensor:
    """Converts to a dtype, or with `bitcast` reinterprets the bits. Float to int truncates toward zero.

    `fp_downcast_rounding` is "rtne" (to nearest even, the default) or "rtz" (toward zero) where a float gets narrower.
    """
    b = _generator.builder
    value = operators.to_tensor(b, input)
    if not isinstance(dtype, _dtype):
        raise CompilationError(f"a cast needs a dtype such as tl.float32, got {describe(dtype)}")
    if bitcast:
        return operators.bitcast(b, value, dtype)
    return operators.cast(b, value, dtype, fp_downcast_rounding)


METHODS["to"] = cast

# ---- memory ----


@builtin
def load(
    pointer: tensor,
    mask: Any = None,
    other: Any = None,
    boundary_check: Any = (),
    padding_option: str = "",
    cache_modifier: str | None = "",
    eviction_policy: str | None = "",
    volatile: bool = False,
    *,
    _generator: Generator,
) -> tensor:
    """Loads through a pointer or a tile of pointers; where `mask` is false nothing is read and `other` is the value.

    Through a block pointer, `boundary_check` names the axes along which what lies outside of the tensor is not read; it is zero,
    or NaN with padding_option="nan".
    """
    b = _generator.builder
    if isinstance(pointer, block_pointer):
        _refuse_masks("tl.load", mask, other)
        pointer, mask, other = block_pointers.access(b, pointer, boundary_check, padding_option)
    else:
        _refuse_bounds("tl.load", boundary_check, padding_option)
    return memory.load(b, pointer, mask, other, cache_modifier, eviction_policy, volatile)


@builtin
def store(
    pointer: tensor,
    value: Any,
    mask: Any = None,
    boundary_check: Any = (),
    cache_modifier: str | None = "",
    eviction_policy: str | None = "",
    *,
    _generator: Generator,
) -> None:
    """Stores a value, converted to the element type, through a pointer or a tile of pointers, where `mask` is true."""
    b = _generator.builder
    if isinstance(pointer, block_pointer):
        _refuse_masks("tl.store", mask, None)
        value = operators.as_type(b, value, pointer.block_type.element_ty)
        if value.shape not in ((), pointer.block_type.shape):
            raise CompilationError(
                f"a block of shape {list(pointer.block_type.shape)} cannot hold a tile of shape {list(value.shape)}"
            )
        pointer, mask, _ = block_pointers.access(b, pointer, boundary_check, None)
    else:
        _refuse_bounds("tl.store", boundary_check, "")
    memory.store(b, pointer, value, mask, cache_modifier, eviction_policy)


def _refuse_masks(name: str, mask: Any, other: Any) -> None:
    if mask is not None or other is not None:
        raise CompilationError(
            f"{name} through a block pointer takes no mask and no other", cure="use boundary_check= and padding_option="
        )


def _refuse_bounds(name: str, boundary_check: Any, padding_option: Any) -> None:
    if boundary_check or padding_option:
        raise CompilationError(
            f"{name} has boundary_check and padding_option for block pointers only",
            cure="use mask= and other=, or make a block pointer by tl.make_block_ptr",
        )


@builtin
def debug_barrier(*, _generator: Generator) -> None:
    """Waits until all threads of the program are here and sees what they wrote."""
    _generator.builder.create("gpu.barrier")


# ---- choosing, comparing ----


@builtin
def where(condition: Any, x: Any, y: Any, *, _generator: Generator) -> tensor:
    """Returns `x` where the condition holds, `y` elsewhere. Both are always computed."""
    return operators.where(_generator.builder, condition, x, y)


def _extremum(generator: Generator, symbol: str, x: Any, y: Any, propagate_nan: PropagateNan) -> tensor:
    b = generator.builder
    values = [operators.promote_bfloat16(b, operators.to_tensor(b, value)) for value in (x, y)]
    return operators.arithmetic(b, symbol + (" of all" if propagate_nan is PropagateNan.ALL else ""), *values)


@builtin
def maximum(x: Any, y: Any, propagate_nan: PropagateNan = PropagateNan.NONE, *, _generator: Generator) -> tensor:
    """Returns the larger of each pair; bfloat16 as float32."""
    return _extremum(_generator, "maximum", x, y, propagate_nan)


@builtin
def minimum(x: Any, y: Any, propagate_nan: PropagateNan = PropagateNan.NONE, *, _generator: Generator) -> tensor:
    """Returns the smaller of each pair; bfloat16 as float32."""
    return _extremum(_generator, "minimum", x, y, propagate_nan)


def _operator(name: str, symbol: str) -> Any:
    def function(x: Any, y: Any, sanitize_overflow: bool = True, *, _generator: Generator) -> tensor:
        b = _generator.builder
        compute = checked_arithmetic if sanitize_overflow and _generator.checks_overflow else operators.arithmetic
        return compute(b, symbol, operators.to_tensor(b, x), y)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Returns x {symbol} y. Integers wrap around; kernels compiled with debug=True stop there, unless sanitize_overflow=False."
    return builtin(function)


add, sub, mul = _operator("add", "+"), _operator("sub", "-"), _operator("mul", "*")


@builtin
def clamp(x: Any, min: Any, max: Any, propagate_nan: PropagateNan = PropagateNan.NONE, *, _generator: Generator) -> tensor:
    """Limits floats to [min, max]; bfloat16 as float32."""
    b = _generator.builder
    value, low, high = (operators.promote_bfloat16(b, operators.to_tensor(b, entry)) for entry in (x, min, max))
    low, high = operators.operands(b, "tl.clamp", low, high)
    value, low = operators.operands(b, "tl.clamp", value, low)
    value, high = operators.operands(b, "tl.clamp", value, high)
    if not value.dtype.is_floating():
        raise CompilationError(f"tl.clamp takes floats, not {value.dtype}", cure="use tl.minimum(tl.maximum(x, low), high)")
    value, low, high = operators.broadcast(b, value, low, high)
    word = "all" if propagate_nan is PropagateNan.ALL else "none"
    return tensor(b.value("tt.clampf", [value.handle, low.handle, high.handle], {"propagate_nan": word}), value.type)


# ---- matrix products, reductions ----


@builtin
def dot(
    input: tensor,
    other: tensor,
    acc: tensor | None = None,
    input_precision: str | None = None,
    allow_tf32: bool | None = None,
    max_num_imprecise_acc: int | None = None,
    out_dtype: dtype | None = None,
    *,
    _generator: Generator,
) -> tensor:
    """Returns input @ other (+ acc) of [M, K] and [K, N] tiles or [B, M, K] and [B, K, N] batches.

    float32 operands are rounded to TF32 unless input_precision="ieee". The result has the type of `acc`, which `out_dtype` states
    where there is none (float32 without either; int32 for int8 and uint8, which mix). GPUs need a K of at least 16, of 32 for 8-bit
    types, of 4 for float64; CPUs and the interpreter take any. See semantics/tiles.py for types.
    """
    builder, default = _generator.builder, _generator.options.default_dot_input_precision
    if byte_products.has_unsigned_bytes(input, other):
        return byte_products.dot(builder, input, other, acc, out_dtype)
    return tiles.dot(builder, input, other, acc, input_precision, allow_tf32, max_num_imprecise_acc, out_dtype, default)


@member
@builtin
def reduce(input: Any, axis: int | None, combine_fn: Any, keep_dims: bool = False, *, _generator: Generator) -> Any:
    """Reduces a tile, or a tuple of tiles of one shape, along `axis` (None: all) with a @jit function of two elements.

    For n tiles the function takes n elements of the left side, then n of the right, and returns n. It must be associative and
    commutative: elements are combined in any order.
    """
    inputs = input if isinstance(input, tuple) else (input,)
    reduced = tiles.reduce(
        _generator.builder, inputs, axis, lambda elements: _as_tuple(_generator.inline(combine_fn, elements)), keep_dims
    )
    return tuple(reduced) if isinstance(input, tuple) else reduced[0]


@member
@builtin
def associative_scan(input: Any, axis: int, combine_fn: Any, reverse: bool = False, *, _generator: Generator) -> Any:
    """Returns the running combination of a tile, or of a tuple of tiles, along `axis`; see `reduce` for the function,
    which need not be commutative here."""
    inputs = input if isinstance(input, tuple) else (input,)
    scanned = tiles.scan(
        _generator.builder, inputs, axis, lambda elements: _as_tuple(_generator.inline(combine_fn, elements)), reverse
    )
    return tuple(scanned) if isinstance(input, tuple) else scanned[0]


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


# ---- what authors promise ----


def _promise(generator: Generator, x: Any, values: Any, name: str, attribute: str) -> Any:
    """Notes a promise about a value; there is nothing to promise about numbers."""
    if not isinstance(x, tensor):
        return x
    promised = tuple(values) if isinstance(values, (tuple, list)) else (values,)
    if any(isinstance(entry, bool) or not isinstance(entry, int) for entry in promised):
        raise CompilationError(f"{name} takes compile-time integers, got {describe(values)}")
    if len(promised) != max(1, len(x.shape)):
        raise CompilationError(f"{name} takes one number for each of the {max(1, len(x.shape))} axes, got {len(promised)}")
    generator.promise(x.handle, attribute, promised)
    return x


@builtin
def multiple_of(input: Any, values: Any, *, _generator: Generator) -> Any:
    """Promises that the first of every contiguous group of elements is a multiple of `values` (one a dimension)."""
    return _promise(_generator, input, values, "tl.multiple_of", "tt.divisibility")


@builtin
def max_contiguous(input: Any, values: Any, *, _generator: Generator) -> Any:
    """Promises that groups of `values` elements (one a dimension) are contiguous."""
    return _promise(_generator, input, values, "tl.max_contiguous", "tt.contiguity")


@builtin
def max_constancy(input: Any, values: Any, *, _generator: Generator) -> Any:
    """Promises that groups of `values` elements (one a dimension) are equal."""
    return _promise(_generator, input, values, "tl.max_constancy", "tt.constancy")


@builtin
def assume(cond: Any, *, _generator: Generator) -> None:
    """Promises that a condition holds. No use is made of it yet."""
    operators.to_tensor(_generator.builder, cond)


# ---- compile time ----


@builtin
def static_assert(cond: Any, msg: str = "", *, _generator: Generator) -> None:
    """Refuses to compile unless a compile-time condition holds."""
    if isinstance(cond, tensor):
        raise CompilationError(
            "the condition of an assertion must be known at compile time", cure="make what it depends on tl.constexpr"
        )
    if not cond:
        raise CompileTimeAssertionFailure(f"assertion failed: {msg}" if msg else "assertion failed")


@builtin
def static_print(*values: Any, sep: str = " ", end: str = "\n", _generator: Generator) -> None:
    """Prints while the kernel is compiled: compile-time values as they are, run-time values as their type."""
    print(*values, sep=sep, end=end)
