"""What operations on whole tiles mean: ranges, shapes, matrix products, reductions and scans, as in Triton."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from kernelpack.errors import CompilationError
from kernelpack.ir.core import Block, Builder, Region
from kernelpack.ir.dialects.tt import INPUT_PRECISIONS
from kernelpack.kernel.types import bfloat16, block_type, check_shape, describe, dtype, float16, float32, float64, int8, int32
from kernelpack.kernel.values import tensor
from kernelpack.semantics import operators

Combine = Callable[[Sequence[tensor]], Sequence[tensor]]

# ---- making tiles ----


def program(b: Builder, operation: str, axis: object) -> tensor:
    """Returns this program's index, or the number of programs, along a grid axis."""
    if isinstance(axis, bool) or not isinstance(axis, int) or axis not in (0, 1, 2):
        raise CompilationError(f"program_id axis must be 0, 1, or 2 but got {describe(axis)}")
    return tensor(b.value(operation, (), {"axis": "xyz"[axis]}), int32)


def arange(b: Builder, start: object, end: object) -> tensor:
    """Returns start, start + 1, ... end - 1 as int32; end - start must be a power of two."""
    for name, value in (("start", start), ("end", end)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise CompilationError(
                f"the {name} of tl.arange must be a compile-time integer, is {describe(value)}",
                cure="take it from a tl.constexpr parameter; add run-time offsets afterwards: n + tl.arange(0, BLOCK)",
            )
        if not -(1 << 31) <= value < 1 << 31:
            raise CompilationError(f"the {name} of tl.arange does not fit int32: {value}")
    assert isinstance(start, int)
    assert isinstance(end, int)
    if end <= start:
        raise CompilationError(f"tl.arange({start}, {end}) is empty")
    count = end - start
    if count & (count - 1):
        raise CompilationError(
            f"tl.arange({start}, {end}) has {count} elements, which is no power of two",
            cure=f"write tl.arange({start}, {start + (1 << count.bit_length())}), and mask what lies beyond",
        ) from ValueError("arange's range must be a power of 2")
    return tensor(b.value("tt.make_range", (), {"start": start, "end": end}), block_type(int32, check_shape([count])))


def full(b: Builder, shape: Sequence[Any], value: operators.Operand, kind: dtype) -> tensor:
    """Returns a tile of a scalar type filled with a number or a scalar."""
    if not isinstance(kind, dtype) or kind.is_block():
        raise CompilationError(f"a dtype such as tl.float32 is needed, got {describe(kind)}")
    extents = check_shape(shape)
    if isinstance(value, tensor):
        if value.shape:
            raise CompilationError(f"tl.full takes a scalar, not a tile of shape {list(value.shape)}")
        return operators.splat(b, operators.cast(b, value, kind), extents)
    if not operators.is_number(value):
        raise CompilationError(f"tl.full takes a number or a scalar, not {describe(value)}")
    return operators.as_type(b, value, kind, extents)


# ---- shapes ----


def index(b: Builder, value: tensor, keys: Sequence[Any]) -> tensor:
    """Returns x[:, None]-like indexing: None inserts an axis, `:` keeps one."""
    axes = sum(key is not None for key in keys)
    if axes and not value.shape:
        if axes == len(keys):
            pointer = value.dtype.is_ptr()
            raise CompilationError(
                f"unsupported tensor index: {'pointers' if pointer else 'scalars'} are not indexed",
                cure="load through the pointer: tl.load(p + i)" if pointer else None,
            )
        keys, axes = [key for key in keys if key != slice(None)], 0  # as in Triton: x[None, :] of a scalar has one axis
    if axes > len(value.shape):
        raise CompilationError(
            f"unsupported tensor index: {axes} axes are indexed, but the shape {list(value.shape)} has {len(value.shape)}",
            cure="insert each further axis with None: x[:, None]",
        )
    for position, key in enumerate(keys):
        if key is None:
            value = operators.expand_dims(b, value, position)
        elif not (isinstance(key, slice) and key == slice(None)):
            raise CompilationError(
                f"unsupported tensor index: tiles are indexed with `:` and None only, not {describe(key)}",
                cure="compute with masks (tl.where, tl.sum), or load what is needed through pointers",
            )
    return value


def reshape(b: Builder, value: tensor, shape: Sequence[Any], reorder: bool = False) -> tensor:
    """Returns the elements in row-major order in another shape; with `reorder` any order will do."""
    extents = check_shape(shape)
    count = 1
    for extent in extents:
        count *= extent
    if count != value.numel:
        raise CompilationError(f"reshape cannot turn shape {list(value.shape)} into {list(extents)}: the sizes differ")
    if extents == value.shape:
        return value
    if not value.shape:
        return operators.splat(b, value, extents)
    if not extents:
        return operators.unsplat(b, value)
    kind = block_type(value.dtype, extents)
    attributes = {"allow_reorder": True} if reorder else {}
    return tensor(b.value("tt.reshape", [value.handle], attributes, kind.to_ir()), kind)


def permute(b: Builder, value: tensor, order: Sequence[Any]) -> tensor:
    """Returns the tile with its axes reordered."""
    rank = len(value.shape)
    axes = [axis(value, entry) for entry in order]
    if sorted(axes) != list(range(rank)):
        raise CompilationError(f"{list(order)} is not a permutation of the {rank} axes of shape {list(value.shape)}")
    if axes == list(range(rank)):
        return value
    kind = block_type(value.dtype, [value.shape[entry] for entry in axes])
    return tensor(b.value("tt.trans", [value.handle], {"order": tuple(axes)}), kind)


def transpose(b: Builder, value: tensor) -> tensor:
    """Returns the tile with its last two axes swapped."""
    rank = len(value.shape)
    if rank < 2:
        raise CompilationError(f"only tiles of two or more axes can be transposed, not shape {list(value.shape)}")
    return permute(b, value, [*range(rank - 2), rank - 1, rank - 2])


def join(b: Builder, x: tensor, y: tensor) -> tensor:
    """Returns both tiles side by side in a new last axis of size 2."""
    x, y = operators.broadcast(b, x, y)
    if x.dtype != y.dtype:
        raise CompilationError(f"tl.join takes tiles of one type, not {x.dtype} and {y.dtype}", cure="cast one with .to()")
    scalars = not x.shape
    if scalars:
        x, y = operators.expand_dims(b, x, 0), operators.expand_dims(b, y, 0)
    joined = tensor(b.value("tt.join", [x.handle, y.handle]), block_type(x.dtype, (*x.shape, 2)))
    return reshape(b, joined, [2]) if scalars else joined


def split(b: Builder, value: tensor) -> tuple[tensor, tensor]:
    """Returns the two halves of a last axis of size 2: the inverse of join."""
    if not value.shape or value.shape[-1] != 2:
        raise CompilationError(f"tl.split needs a last axis of size 2, the shape is {list(value.shape)}")
    scalars = len(value.shape) == 1
    if scalars:
        value = operators.expand_dims(b, value, 0)
    kind = block_type(value.dtype, value.shape[:-1])
    first, second = (tensor(result, kind) for result in b.create("tt.split", [value.handle]).results)
    return (reshape(b, first, []), reshape(b, second, [])) if scalars else (first, second)


def cat(b: Builder, x: tensor, y: tensor) -> tensor:
    """Returns two tiles of one axis and one type as one, in any order of elements."""
    for value in (x, y):
        if not isinstance(value, tensor) or len(value.shape) != 1:
            raise CompilationError(f"tl.cat takes tiles of one axis, got {describe(value)}")
    if x.type != y.type:
        raise CompilationError(f"tl.cat takes tiles of one type, not {x.type} and {y.type}")
    kind = block_type(x.dtype, [x.numel + y.numel])
    return tensor(b.value("tt.cat", [x.handle, y.handle], result_type=kind.to_ir()), kind)


def axis(value: tensor, number: object, name: str = "axis") -> int:
    """Returns an axis counted from the front. Raises CompilationError where the tile has no such axis."""
    rank = len(value.shape)
    if isinstance(number, bool) or not isinstance(number, int):
        raise CompilationError(f"{name} must be a compile-time integer, is {describe(number)}")
    if not -rank <= number < rank:
        raise CompilationError(f"{name} {number} is out of range for a tile of shape {list(value.shape)}")
    return number % rank


# ---- matrix products ----

ANY_NUMBER = 1 << 30
"""Of products of 8-bit floats that a tensor core may sum in its own precision: all, unless the kernel says otherwise."""

# operand type: the types that the product may accumulate in, the default first
_DOT_RESULTS: dict[dtype, tuple[dtype, ...]] = {
    int8: (int32,),
    float16: (float32, float16),
    bfloat16: (float32,),
    float32: (float32,),
    float64: (float64,),
}


def dot(
    b: Builder,
    x: object,
    y: object,
    acc: object,
    input_precision: str | None,
    allow_tf32: bool | None,
    max_num_imprecise_acc: int | None,
    out_dtype: dtype | None,
    default_precision: str | None = None,
) -> tensor:
    """Returns x @ y (+ acc) for tiles [M, K] and [K, N], or batches [B, M, K] and [B, K, N] of them.

    Backends may refuse a small K. int8 accumulates in int32, float64 in float64, float16 in float32 or float16, all else in float32,
    also where out_dtype is float16, or float64 for float32 and bfloat16. float32 operands are rounded to TF32 unless input_precision="ieee" or allow_tf32=False; where neither is given, `default_precision` counts.
    """
    if not isinstance(x, tensor) or not isinstance(y, tensor) or not x.shape or not y.shape:
        raise CompilationError(f"tl.dot multiplies tiles, not {describe(x)} and {describe(y)}")
    allowed = (float32, float16) if x.dtype.is_fp8() else _DOT_RESULTS.get(x.dtype)
    if allowed is None or (x.dtype != y.dtype and not (x.dtype.is_fp8() and y.dtype.is_fp8())):
        raise CompilationError(
            f"tl.dot does not take {x.dtype} and {y.dtype}",
            cure="cast both to one of float16, bfloat16, float32, float64, int8; int8 and uint8 mix",
        )
    shape = _dot_shape(x, y)
    if out_dtype is None and isinstance(acc, tensor) and acc.dtype in allowed:
        out_dtype = acc.dtype
    result = out_dtype if out_dtype is not None and out_dtype in allowed else allowed[0]
    # as in Triton: int8 always gives int32, what float16 could not hold is not made float16, and sums in float32 stay float32
    in_float32 = out_dtype == float16 or (out_dtype == float64 and allowed == (float32,))
    ignored = out_dtype is not None and (out_dtype.is_int() if x.dtype.is_int() else in_float32)
    if out_dtype not in (None, float32, result) and not ignored:  # float32 is the default and gives way to the operands' own
        raise CompilationError(
            f"tl.dot of {x.dtype} cannot give {out_dtype}", cure=f"use out_dtype={allowed[0]!r} and cast the result"
        )
    kind = block_type(result, shape)
    if acc is None:
        start = operators.constant(b, 0, kind)
    elif isinstance(acc, tensor) and acc.type == kind:
        start = acc
    else:
        raise CompilationError(
            f"the accumulator of tl.dot must be {kind}, is {acc.type if isinstance(acc, tensor) else describe(acc)}",
            cure=f"make it with tl.zeros({list(shape)}, dtype={result!r})",
        )
    attributes: dict[str, Any] = {"input_precision": _precision(x.dtype, input_precision, allow_tf32, default_precision)}
    if x.dtype.is_fp8():
        depth = x.shape[-1]
        if max_num_imprecise_acc is not None and max_num_imprecise_acc > depth:
            raise CompilationError(
                f"max_num_imprecise_acc is {max_num_imprecise_acc}, more than the {depth} products that are summed",
                cure=f"use at most {depth}, or leave it out to sum all on the tensor core",
            ) from ValueError(f"max_num_imprecise_acc ({max_num_imprecise_acc}) must be <= K ({depth})")
        attributes["max_num_imprecise_acc"] = ANY_NUMBER if max_num_imprecise_acc is None else max_num_imprecise_acc
    return _multiply(b, x, y, start, attributes)


def _multiply(b: Builder, x: tensor, y: tensor, start: tensor, attributes: dict[str, Any]) -> tensor:
    """Returns the product, several axes of batches taken as one."""
    if len(x.shape) <= 3:
        return tensor(b.value("tt.dot", [x.handle, y.handle, start.handle], attributes), start.type)
    count = math.prod(x.shape[:-2])
    left, right, total = (reshape(b, value, (count, *value.shape[-2:])) for value in (x, y, start))
    return reshape(b, _multiply(b, left, right, total, attributes), start.shape)


def _dot_shape(x: tensor, y: tensor) -> tuple[int, ...]:
    left, right = x.shape, y.shape
    if len(left) != len(right) or len(left) < 2:
        raise CompilationError(f"tl.dot takes two tiles of 2 axes, or of more, not shapes {list(left)} and {list(right)}")
    if left[-1] != right[-2] or left[:-2] != right[:-2]:
        raise CompilationError(
            f"shapes {list(left)} and {list(right)} cannot be multiplied: "
            + (f"K is {left[-1]} and {right[-2]}" if left[-1] != right[-2] else "the batches differ"),
            cure="transpose an operand with tl.trans if its axes are swapped",
        )
    return (*left[:-1], right[-1])


def _precision(operand: dtype, input_precision: object, allow_tf32: bool | None, default: str | None) -> str:
    """Returns the precision of the products; only float32 operands have a choice."""
    if input_precision is not None and allow_tf32 is not None:
        raise CompilationError("tl.dot takes input_precision or allow_tf32, not both", cure="keep input_precision")
    by_default = input_precision is None
    if by_default:
        input_precision = default
    if input_precision is None:
        word = "ieee" if allow_tf32 is not None and not allow_tf32 else "tf32"
    elif isinstance(input_precision, str) and input_precision.lower() in INPUT_PRECISIONS:
        word = input_precision.lower()
    else:
        source = "TRITON_F32_DEFAULT (default_dot_input_precision)" if by_default else "input_precision"
        raise CompilationError(
            f"{source} cannot be {describe(input_precision)}",
            cure=f"use one of {', '.join(map(repr, INPUT_PRECISIONS))}",
        )
    return word if operand == float32 else "ieee"


# ---- reductions and scans ----


def reduce(b: Builder, inputs: Sequence[tensor], along: object, combine: Combine, keep_dims: bool) -> list[tensor]:
    """Returns tiles of one shape reduced together along an axis, or along all (None); `combine` generates the region."""
    _check_inputs("a reduction", inputs)
    rank = len(inputs[0].shape)
    if along is None:
        inputs = [reshape(b, value, [value.numel], reorder=len(inputs) == 1) for value in inputs]
        at = 0
    else:
        at = axis(inputs[0], along)
    shape = inputs[0].shape
    rest = (*shape[:at], *shape[at + 1 :])
    op_name, attributes = "tt.reduce", {"axis": at}
    region = _combine_region(b, op_name, inputs, combine)
    kinds = [block_type(value.dtype, rest) if rest else value.dtype for value in inputs]
    op = b.create(op_name, [value.handle for value in inputs], attributes, [kind.to_ir() for kind in kinds], [region])
    reduced = [tensor(result, kind) for result, kind in zip(op.results, kinds, strict=True)]
    if keep_dims:
        for position in range(rank) if along is None else [at]:
            reduced = [operators.expand_dims(b, value, position) for value in reduced]
    return reduced


def scan(b: Builder, inputs: Sequence[tensor], along: object, combine: Combine, reverse: bool) -> list[tensor]:
    """Returns the running combination of tiles of one shape along an axis, from the end if `reverse`."""
    _check_inputs("a scan", inputs)
    attributes = {"axis": axis(inputs[0], along)} | ({"reverse": True} if reverse else {})
    region = _combine_region(b, "tt.scan", inputs, combine)
    op = b.create("tt.scan", [value.handle for value in inputs], attributes, None, [region])
    return [tensor(result, value.type) for result, value in zip(op.results, inputs, strict=True)]


def _check_inputs(what: str, inputs: Sequence[tensor]) -> None:
    for value in inputs:
        if not isinstance(value, tensor) or not value.shape:
            raise CompilationError(f"{what} needs a tile, got {describe(value)}")
        if value.shape != inputs[0].shape:
            raise CompilationError(
                f"{what} of several tiles needs one shape, got {list(inputs[0].shape)} and {list(value.shape)}"
            )


def _combine_region(b: Builder, op_name: str, inputs: Sequence[tensor], combine: Combine) -> Region:
    """Returns the region that takes two elements of each input and gives one of each."""
    elements = [value.dtype for value in inputs]
    block = Block([kind.to_ir() for kind in elements * 2])
    with operators.inside(b, block):
        arguments = [tensor(argument, kind) for argument, kind in zip(block.arguments, elements * 2, strict=True)]
        combined = [operators.to_tensor(b, value) for value in combine(arguments)]
        if [value.type for value in combined] != elements:
            raise CompilationError(
                f"the combine function must give ({', '.join(map(str, elements))}), "
                f"gives ({', '.join(str(value.type) for value in combined)})",
                cure="give it one parameter for each element of both sides, and cast what it returns",
            )
        b.create(f"{op_name}.return", [value.handle for value in combined])
    return Region([block])
