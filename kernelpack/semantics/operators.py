"""What operators mean: operands and their common type, broadcasting, casts, arithmetic and comparisons, as in Triton.

Operands are tensors, or Python numbers, which are weakly typed: they take the other operand's type unless that would change
the kind of number. Every function creates operations with the Builder it is given and raises CompilationError without a
location; the visitor that called adds its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kernelpack.errors import CompilationError
from kernelpack.ir.core import Block, Builder, Value
from kernelpack.kernel.promotion import computation_type
from kernelpack.kernel.types import (
    bfloat16,
    block_type,
    check_shape,
    describe,
    dtype,
    float32,
    float64,
    int1,
    int32,
    int64,
    uint32,
    uint64,
)
from kernelpack.kernel.values import tensor
from kernelpack.semantics.constant_operands import check_right_side

Number = bool | int | float
Operand = tensor | bool | int | float


@contextmanager
def inside(b: Builder, block: Block) -> Iterator[None]:
    """Lets the builder append to another block for a while."""
    outer = b.block, b.index
    b.block, b.index = block, None
    try:
        yield
    finally:
        b.block, b.index = outer


# ---- numbers, constants, tensors ----


def is_number(value: object) -> bool:
    """Whether a value is a Python number (bool included)."""
    return isinstance(value, (bool, int, float))


def type_of_number(value: Number) -> dtype:
    """Returns the type that a Python number has as a tensor: the first of int32, uint32, int64, uint64 that holds it; float32
    unless only float64 has its magnitude."""
    if isinstance(value, bool):
        return int1
    if isinstance(value, int):
        for kind in (int32, uint32, int64, uint64):
            if kind.get_int_min_value() <= value <= kind.get_int_max_value():
                return kind
        raise CompilationError(f"the integer {value} does not fit 64 bits")
    magnitude = abs(value)
    ordinary = magnitude in (0.0, float("inf")) or value != value or 2.0**-126 <= magnitude <= (2.0 - 2.0**-23) * 2.0**127
    return float32 if ordinary else float64


def constant(b: Builder, value: Number, kind: dtype) -> tensor:
    """Returns a constant of a scalar type, or a tile filled with it. The value is rounded, or wrapped, to the type."""
    if kind.scalar.is_bool():
        value = bool(value)
    return tensor(b.constant(value, kind.to_ir()), kind)


def to_tensor(b: Builder, value: object) -> tensor:
    """Returns a tensor as it is and a Python number as a scalar. Raises CompilationError for anything else."""
    if isinstance(value, tensor):
        return value
    if isinstance(value, (bool, int, float)):
        return constant(b, value, type_of_number(value))
    if value is None:
        raise CompilationError(
            "None is used where a value is expected",
            cure="guard it: `if NAME is not None:` (decided at compile time); a function without `return` gives None",
        )
    raise CompilationError(f"{describe(value)} is not a run-time value or a number")


def as_type(b: Builder, value: object, kind: dtype, shape: Sequence[int] = ()) -> tensor:
    """Returns a value converted to a scalar type.

    Run-time values are cast. Python numbers become constants, filled into a tile of `shape` if one is given; a float is truncated
    where `kind` is an integer. Raises CompilationError for infinity and NaN as an integer.
    """
    if isinstance(value, tensor) or not is_number(value):
        return cast(b, to_tensor(b, value), kind)
    assert isinstance(value, (bool, int, float))
    if kind.is_ptr():
        return cast(b, to_tensor(b, value), kind)
    if isinstance(value, float) and kind.is_int() and not kind.is_bool():
        if value != value or abs(value) == float("inf"):
            raise CompilationError(f"{value} has no value as {kind}", cure=f"use a number that {kind} holds")
        value = int(value)
    return constant(b, value, block_type(kind, shape) if shape else kind)


def like(value: tensor, element: dtype) -> dtype:
    """Returns the type of `value` with another element."""
    return value.type.with_element_ty(element) if isinstance(value.type, block_type) else element


# ---- operands ----


def _check_weak(value: Operand, kind: dtype) -> None:
    """A Python number must be representable where it is used as an integer."""
    if isinstance(value, tensor) or not kind.is_int():
        return
    if not kind.get_int_min_value() <= value <= kind.get_int_max_value():
        raise CompilationError(
            f"the number {value} is out of range for the other operand's type, {kind}",
            cure="cast the other operand to a wider type with .to()",
        )


def operands(
    b: Builder, symbol: str, lhs: Operand, rhs: Operand, *, division: bool = False, pointers: bool = False
) -> tuple[tensor, tensor]:
    """Returns both operands in their common type and shape. With `pointers`, pointers pass and are not converted; neither are 8-bit
    floats refused, which have no arithmetic but can be chosen from."""
    kinds = []
    for value in (lhs, rhs):
        if not isinstance(value, tensor) and not is_number(value):
            cure = "guard it: `if NAME is not None:` (decided at compile time)" if value is None else None
            raise CompilationError(f"{symbol} does not take {describe(value)}", cure=cure)
        kinds.append(value.dtype if isinstance(value, tensor) else type_of_number(value))
    for kind in kinds:
        if not (kind.is_ptr() or kind.is_floating() or kind.is_int()):
            raise CompilationError(f"{symbol} does not take {kind}", cure="read a buffer with hopper.local_load first")
    left, right = kinds
    if left.is_ptr() or right.is_ptr():
        if not pointers or left.is_floating() or right.is_floating() or (left.is_ptr() and right.is_ptr() and left != right):
            raise CompilationError(
                f"{symbol} does not take {left} and {right}",
                cure="cast the offset to an integer: x.to(tl.int64)"
                if symbol in ("+", "-") and (left.is_floating() or right.is_floating())
                else "load the value first with tl.load, or cast the pointer: p.to(tl.int64)",
            )
        x, y = broadcast(b, to_tensor(b, lhs), to_tensor(b, rhs))
        return x, y
    common = computation_type(left, not isinstance(lhs, tensor), right, not isinstance(rhs, tensor), division)
    if common.is_fp8() and not pointers:
        raise CompilationError(f"there is no arithmetic on {common}", cure="cast to float16 first: x.to(tl.float16)")
    _check_weak(lhs, common)
    _check_weak(rhs, common)
    shapes = [value.shape for value in (lhs, rhs) if isinstance(value, tensor)]
    x, y = broadcast(b, *(as_type(b, value, common, shapes[0] if shapes else ()) for value in (lhs, rhs)))
    return x, y


# ---- shapes ----


def splat(b: Builder, value: tensor, shape: Sequence[int]) -> tensor:
    """Returns a tile filled with a scalar; the scalar itself for the shape ()."""
    if not shape:
        return value
    kind = block_type(value.dtype, shape)
    made_by = value.handle.defining_op
    if made_by is not None and made_by.name == "arith.constant":
        return constant(b, made_by.attributes["value"], kind)
    return tensor(b.value("tt.splat", [value.handle], result_type=kind.to_ir()), kind)


def expand_dims(b: Builder, value: tensor, axis: int) -> tensor:
    """Returns the value with an axis of size 1 inserted; a scalar becomes a tile."""
    rank = len(value.shape)
    at = axis + rank + 1 if axis < 0 else axis
    if not 0 <= at <= rank:
        raise CompilationError(
            f"invalid axis {axis}. Expected {-rank - 1} <= axis < {rank + 1}: the result has {rank + 1} dimensions"
        )
    shape = (*value.shape[:at], 1, *value.shape[at:])
    if not value.shape:
        return splat(b, value, shape)
    return tensor(b.value("tt.expand_dims", [value.handle], {"axis": at}), block_type(value.dtype, shape))


def broadcast_to(b: Builder, value: tensor, shape: Sequence[Any]) -> tensor:
    """Returns the value with every axis of size 1 repeated to `shape`. The ranks must be equal, unless it is a scalar."""
    wanted = check_shape(shape)
    if value.shape == wanted:
        return value
    if not value.shape:
        return splat(b, value, wanted)
    if len(value.shape) != len(wanted) or any(a not in (1, c) for a, c in zip(value.shape, wanted, strict=True)):
        raise CompilationError(
            f"a tile of shape {list(value.shape)} does not broadcast to {list(wanted)}",
            cure="insert axes with x[:, None] first" if len(value.shape) != len(wanted) else None,
        )
    made_by = value.handle.defining_op
    kind = block_type(value.dtype, wanted)
    if made_by is not None and made_by.name == "arith.constant":
        return constant(b, made_by.attributes["value"], kind)
    return tensor(b.value("tt.broadcast", [value.handle], result_type=kind.to_ir()), kind)


def broadcast(b: Builder, *values: tensor, roles: Sequence[str] = ()) -> tuple[tensor, ...]:
    """Returns tensors in their common shape: missing leading axes are added, axes of size 1 repeated. `roles` are what errors call
    them."""
    rank = max(len(value.shape) for value in values)
    tiles = [value for value in values if value.shape]
    padded = [(1,) * (rank - len(value.shape)) + value.shape for value in tiles]
    common = []
    for axis in range(rank):
        extents = dict.fromkeys(shape[axis] for shape in padded if shape[axis] != 1)
        if len(extents) > 1:
            names = dict(zip(map(id, values), (f" ({role})" for role in roles), strict=False))
            shapes = " and ".join(f"{list(value.shape)}{names.get(id(value), '')}" for value in tiles)
            raise CompilationError(
                f"shapes {shapes} do not broadcast: axis {axis} has extents {' and '.join(map(str, extents))}",
                cure="give the tiles the axes that they vary over: rows[:, None], columns[None, :]",
            )
        common.append(next(iter(extents), 1))
    made = []
    for value in values:
        while value.shape and len(value.shape) < rank:
            value = expand_dims(b, value, 0)
        made.append(broadcast_to(b, value, common) if rank else value)
    return tuple(made)


def scalar_condition(b: Builder, value: tensor) -> Value:
    """Returns a condition of `if`, `while` or a ternary as one i1."""
    if value.numel != 1:
        raise CompilationError(
            f"a condition must be a scalar, this is a tile of shape {list(value.shape)}",
            cure="use tl.where to choose elementwise, or reduce it: tl.sum(x.to(tl.int32)) > 0",
        )
    return cast(b, unsplat(b, value), int1).handle


def unsplat(b: Builder, value: tensor) -> tensor:
    """Returns the element of a tile of one as a scalar; a scalar itself."""
    return tensor(b.value("tt.unsplat", [value.handle]), value.dtype) if value.shape else value


# ---- casts ----


def cast(b: Builder, value: tensor, to: dtype, rounding: str | None = None) -> tensor:
    """Converts to the scalar type of `to`. Floats become integers by truncation; integers narrow by wrapping.

    `rounding` ("rtne" or "rtz") is for narrowing floats only; a cast to a value's own type asks nothing of it.
    """
    source, target = value.dtype, to.scalar
    if source == target:
        return value
    if rounding is not None:
        narrows = source.is_floating() and target.is_floating() and target.primitive_bitwidth < source.primitive_bitwidth
        if rounding not in ("rtne", "rtz") or not narrows:
            raise CompilationError(
                f"fp_downcast_rounding={rounding!r} does not apply to a cast from {source} to {target}",
                cure='it is "rtne" or "rtz", for casts to a narrower float',
            )
    kind = like(value, target)
    handle = value.handle

    def convert(name: str) -> tensor:
        return tensor(b.value(name, [handle], result_type=kind.to_ir()), kind)

    if source.is_ptr() or target.is_ptr():
        return _cast_pointer(b, value, target, convert)
    if target.is_bool():
        return compare(b, "!=", value, constant(b, 0, value.type))
    if source.is_floating() and target.is_floating():
        return _cast_float(b, value, target, rounding, convert)
    if source.is_fp8() or target.is_fp8():
        raise CompilationError(f"cannot cast {source} to {target}", cure="cast to float32 in between")
    if source.is_floating():
        return convert("arith.fptosi" if target.is_int_signed() else "arith.fptoui")
    if target.is_floating():
        return convert("arith.sitofp" if source.is_int_signed() else "arith.uitofp")
    if source.int_bitwidth == target.int_bitwidth:
        return tensor(handle, kind)
    if source.int_bitwidth > target.int_bitwidth:
        return convert("arith.trunci")
    return convert("arith.extsi" if source.is_int_signed() else "arith.extui")


def _cast_float(b: Builder, value: tensor, target: dtype, rounding: str | None, convert: Callable[[str], tensor]) -> tensor:
    source = value.dtype
    if source.is_fp8() or target.is_fp8() or rounding == "rtz":
        kind = like(value, target)
        narrows = target.primitive_bitwidth < source.primitive_bitwidth
        attributes = {"rounding": rounding or "rtne"} if narrows else {}
        return tensor(b.value("tt.fp_to_fp", [value.handle], attributes, kind.to_ir()), kind)
    if source.primitive_bitwidth == target.primitive_bitwidth:  # float16 and bfloat16: neither holds the other
        return cast(b, cast(b, value, float32), target)
    return convert("arith.extf" if target.primitive_bitwidth > source.primitive_bitwidth else "arith.truncf")


def _cast_pointer(b: Builder, value: tensor, target: dtype, convert: Callable[[str], tensor]) -> tensor:
    source = value.dtype
    if source.is_ptr() and target.is_ptr():
        return convert("tt.bitcast")
    if source.is_ptr() and target in (int64, uint64):
        return convert("tt.ptr_to_int")
    if source.is_ptr() and target.is_bool():
        return cast(b, cast(b, value, int64), int1)
    if source in (int64, uint64):
        return convert("tt.int_to_ptr")
    cure = "load what it points to: tl.load(x)" if target.is_floating() else "pointers convert to and from int64 and uint64"
    raise CompilationError(f"cannot cast {source} to {target}", cure=cure)


def bitcast(b: Builder, value: tensor, to: dtype) -> tensor:
    """Reinterprets the bits as another type of the same width."""
    source, target = value.dtype, to.scalar
    if source.is_ptr() or target.is_ptr():
        return cast(b, value, target)
    if source.primitive_bitwidth != target.primitive_bitwidth:
        raise CompilationError(
            f"cannot bitcast {source} ({source.primitive_bitwidth} bits) to {target} ({target.primitive_bitwidth} bits)"
        )
    kind = like(value, target)
    if source.is_int() and target.is_int():
        return tensor(value.handle, kind)
    return tensor(b.value("tt.bitcast", [value.handle], result_type=kind.to_ir()), kind)


# ---- arithmetic ----

# operator: the operation for floats, signed and unsigned integers
_ARITHMETIC: dict[str, tuple[str | None, str, str]] = {
    "+": ("arith.addf", "arith.addi", "arith.addi"),
    "-": ("arith.subf", "arith.subi", "arith.subi"),
    "*": ("arith.mulf", "arith.muli", "arith.muli"),
    "/": ("arith.divf", "", ""),
    "//": (None, "arith.divsi", "arith.divui"),
    "%": ("arith.remf", "arith.remsi", "arith.remui"),
    "&": (None, "arith.andi", "arith.andi"),
    "|": (None, "arith.ori", "arith.ori"),
    "^": (None, "arith.xori", "arith.xori"),
    "<<": (None, "arith.shli", "arith.shli"),
    ">>": (None, "arith.shrsi", "arith.shrui"),
    "maximum": ("arith.maxnumf", "arith.maxsi", "arith.maxui"),
    "minimum": ("arith.minnumf", "arith.minsi", "arith.minui"),
    "maximum of all": ("arith.maximumf", "arith.maxsi", "arith.maxui"),
    "minimum of all": ("arith.minimumf", "arith.minsi", "arith.minui"),
}
_NO_FLOATS = {"//": "use tl.floor(x / y)"} | dict.fromkeys(
    ("&", "|", "^", "<<", ">>"), "cast to an integer: x.to(tl.int32), or its bits: x.to(tl.int32, bitcast=True)"
)

# operator: the predicate for floats, signed and unsigned integers
_COMPARISONS = {
    "==": ("oeq", "eq", "eq"),
    "!=": ("une", "ne", "ne"),
    "<": ("olt", "slt", "ult"),
    "<=": ("ole", "sle", "ule"),
    ">": ("ogt", "sgt", "ugt"),
    ">=": ("oge", "sge", "uge"),
}


def arithmetic(b: Builder, symbol: str, lhs: Operand, rhs: Operand) -> tensor:
    """Returns the result of a binary operator on operands of which one at least is a tensor."""
    if symbol in ("+", "-") and any(isinstance(value, tensor) and value.dtype.is_ptr() for value in (lhs, rhs)):
        return _pointer_arithmetic(b, symbol, lhs, rhs)
    if symbol == "/":
        return _divide(b, lhs, rhs)
    x, y = operands(b, symbol, lhs, rhs, division=symbol in ("//", "%"))
    for_float, for_signed, for_unsigned = _ARITHMETIC[symbol]
    if x.dtype.is_floating():
        if for_float is None:
            raise CompilationError(
                f"invalid operands of type {_kind(lhs)} and {_kind(rhs)}: {symbol} does not take floats",
                cure=_NO_FLOATS.get(symbol),
            )
        name = for_float
    else:
        check_right_side(symbol, x.dtype, rhs)
        # the sign of a shift is that of what is shifted, not of the common type
        shifted = lhs if isinstance(lhs, tensor) else rhs
        judge = shifted.dtype if symbol == ">>" and isinstance(shifted, tensor) else x.dtype
        name = for_signed if judge.is_int_signed() else for_unsigned
    return tensor(b.value(name, [x.handle, y.handle]), x.type)


def _divide(b: Builder, lhs: Operand, rhs: Operand) -> tensor:
    """True division: integers are divided as float32."""
    x, y = operands(b, "/", lhs, rhs, division=True)
    if x.dtype.is_int():
        x, y = cast(b, x, float32), cast(b, y, float32)
    return tensor(b.value("arith.divf", [x.handle, y.handle]), x.type)


def _pointer_arithmetic(b: Builder, symbol: str, lhs: Operand, rhs: Operand) -> tensor:
    x, y = operands(b, symbol, lhs, rhs, pointers=True)
    if y.dtype.is_ptr() and symbol == "+":
        x, y = y, x
    if y.dtype.is_ptr():
        raise CompilationError(
            f"{x.dtype} {symbol} {y.dtype} has no meaning", cure="subtract addresses as integers: p.to(tl.int64)"
        )
    if symbol == "-":
        y = negative(b, y)
    if y.dtype.is_int_unsigned() and y.dtype.int_bitwidth < 64:  # tt.addptr reads its offset as signed
        y = cast(b, y, int64)
    elif y.dtype.int_bitwidth < 32:
        y = cast(b, y, int32)
    return tensor(b.value("tt.addptr", [x.handle, y.handle]), x.type)


def _kind(value: Operand) -> object:
    return value.type if isinstance(value, tensor) else type_of_number(value)


def compare(b: Builder, symbol: str, lhs: Operand, rhs: Operand) -> tensor:
    """Returns the int1 result of a comparison. Comparisons with NaN are false, except != which is true."""
    x, y = operands(b, symbol, lhs, rhs)
    for_float, for_signed, for_unsigned = _COMPARISONS[symbol]
    if x.dtype.is_floating():
        name, predicate = "arith.cmpf", for_float
    else:
        name, predicate = "arith.cmpi", for_signed if x.dtype.is_int_signed() else for_unsigned
    return tensor(b.value(name, [x.handle, y.handle], {"predicate": predicate}), like(x, int1))


def negative(b: Builder, value: tensor) -> tensor:
    if value.dtype.is_ptr():
        raise CompilationError("a pointer cannot be negated")
    if value.dtype.is_floating():
        return tensor(b.value("arith.negf", [value.handle]), value.type)
    return arithmetic(b, "-", constant(b, 0, value.type), value)


def invert(b: Builder, value: tensor) -> tensor:
    """Flips every bit; for int1, logical not."""
    if not value.dtype.is_int():
        raise CompilationError(f"~ takes integers, not {value.dtype}")
    ones = constant(b, 1 if value.dtype.is_bool() else -1, value.type)
    return arithmetic(b, "^", value, ones)


def logical_not(b: Builder, value: tensor) -> tensor:
    if value.dtype.is_bool():
        return invert(b, value)
    return compare(b, "==", value, constant(b, 0, value.type))


def logical(b: Builder, symbol: str, lhs: Operand, rhs: Operand) -> tensor:
    """Returns `and` (&) or `or` (|) of truth values; both sides are evaluated."""
    return arithmetic(b, symbol, *(cast(b, to_tensor(b, value), int1) for value in (lhs, rhs)))


def where(b: Builder, condition: Operand, x: Operand, y: Operand) -> tensor:
    """Returns elements of `x` where the condition holds and of `y` elsewhere, in their common type and shape."""
    given = to_tensor(b, condition)
    if not given.dtype.is_bool():
        warnings.warn(
            f"tl.where with a non-boolean condition ({given.dtype}) is deprecated: write condition != 0",
            UserWarning,
            stacklevel=2,
        )
    chosen = cast(b, given, int1)
    yes, no = operands(b, "tl.where", x, y, pointers=True)
    if chosen.shape:
        chosen, yes, no = broadcast(b, chosen, yes, no, roles=("condition", "x", "y"))
    elif yes.shape:  # a scalar chooses the whole tile
        chosen = splat(b, chosen, yes.shape)
    if yes.type != no.type:
        raise CompilationError(f"tl.where cannot choose between {yes.type} and {no.type}")
    return tensor(b.value("arith.select", [chosen.handle, yes.handle, no.handle]), yes.type)


def promote_bfloat16(b: Builder, value: tensor) -> tensor:
    """Returns bfloat16 as float32 and anything else as it is."""
    return cast(b, value, float32) if value.dtype == bfloat16 else value
