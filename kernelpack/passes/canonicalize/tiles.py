"""Folds of tiles: splats and constants move outward, shape changes that change nothing go."""

from __future__ import annotations

from collections.abc import Sequence

from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import attribute, facts
from kernelpack.ir.rewrite import Fold, Pattern, Rewriter
from kernelpack.ir.types import TensorType, element_of
from kernelpack.passes.canonicalize.arithmetic import constant_of, made_by


def lift_splats(op: Operation, build: Rewriter) -> Value | None:
    """An elementwise operation on splats is the splat of the operation on scalars: once instead of once an element."""
    if not isinstance(op.result.type, TensorType) or not any(made_by(value, "tt.splat") for value in op.operands):
        return None
    tensors = [value for value in op.operands if isinstance(value.type, TensorType)]
    if not all(made_by(value, "tt.splat") or constant_of(value) is not None for value in tensors):
        return None
    scalars = [_scalar(value, build) for value in op.operands]
    attributes = {name: value for name, value in op.attributes.items() if name not in facts(op)}  # they speak of the tensor
    scalar = build.value(op.name, scalars, attributes, element_of(op.result.type))
    return build.value("tt.splat", [scalar], None, op.result.type)


def _scalar(value: Value, build: Rewriter) -> Value:
    """Returns what all elements of a splat or constant are."""
    splat = made_by(value, "tt.splat")
    if splat is not None:
        return splat.operand
    number = constant_of(value)
    return value if number is None or not isinstance(value.type, TensorType) else build.constant(number, element_of(value.type))


def constant_shape(op: Operation, build: Rewriter) -> Value | None:
    """A constant or splat in another shape is a constant or splat."""
    source = op.operand
    number = constant_of(source)
    if number is not None:
        return build.constant(number, op.result.type)
    splat = made_by(source, "tt.splat")
    return build.value("tt.splat", splat.operands, None, op.result.type) if splat is not None else None


def unsplat(op: Operation, build: Rewriter) -> Value | None:
    number, splat = constant_of(op.operand), made_by(op.operand, "tt.splat")
    if number is not None:
        return build.constant(number, op.result.type)
    return splat.operand if splat is not None else None


def same_shape(op: Operation, build: Rewriter) -> Value | None:
    return op.operand if op.operand.type == op.result.type else None


def broadcast_twice(op: Operation, build: Rewriter) -> Value | None:
    inner = made_by(op.operand, "tt.broadcast")
    return build.value(op.name, inner.operands, None, op.result.type) if inner is not None else None


def reshape_twice(op: Operation, build: Rewriter) -> Value | None:
    """Row-major order does not care for the shape in between; a tile of one more axis of extent 1 is a reshape too."""
    inner = made_by(op.operand, "tt.reshape", "tt.expand_dims")
    if inner is None or attribute(op, "allow_reorder") or (inner.name == "tt.reshape" and attribute(inner, "allow_reorder")):
        return None
    return build.value(op.name, inner.operands, None, op.result.type)


def transpose(op: Operation, build: Rewriter) -> Value | None:
    """The order 0, 1, ... does nothing; two transpositions are one."""
    order = op.attributes["order"]
    if list(order) == list(range(len(order))):
        return op.operand
    inner = made_by(op.operand, "tt.trans")
    if inner is None:
        return None
    return build.value(op.name, inner.operands, {"order": tuple(inner.attributes["order"][axis] for axis in order)})


def range_of_one(op: Operation, build: Rewriter) -> Value | None:
    start, end = op.attributes["start"], op.attributes["end"]
    return build.constant(start, op.result.type) if end - start == 1 else None


def split_join(op: Operation, rewriter: Rewriter) -> bool:
    join = made_by(op.operand, "tt.join")
    if join is None:
        return False
    rewriter.replace(op, *join.operands)
    return True


FOLDS: dict[str, Sequence[Fold]] = {
    "tt.make_range": (range_of_one,),
    "tt.splat": (constant_shape,),
    "tt.unsplat": (unsplat,),
    "tt.expand_dims": (constant_shape,),
    "tt.broadcast": (same_shape, constant_shape, broadcast_twice),
    "tt.reshape": (same_shape, constant_shape, reshape_twice),
    "tt.trans": (constant_shape, transpose),
}

PATTERNS: dict[str, Sequence[Pattern]] = {"tt.split": (split_join,)}
