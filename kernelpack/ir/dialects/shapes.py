"""tt, continued: operations that make a tile or change its shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelpack.ir.core import Attribute, Operation, Value
from kernelpack.ir.dialect import Dialect, OpDef, Trait, attr, row
from kernelpack.ir.types import I32, TensorType, Type, element_of, shape_of, with_shape

Operands = Sequence[Value]
Attributes = dict[str, Attribute]


def _shape_change(name: str, format: str, check: Any = None, **more: Any) -> OpDef:
    """A row for a pure operation that makes a tensor of another shape from one, with the result type printed."""
    return row(f"tt.{name}", "src: tensor", result="tensor", traits=[Trait.PURE], format=format, check=check, **more)


def _infer_range(operands: Operands, attributes: Attributes) -> list[Type]:
    return [TensorType((attributes["end"] - attributes["start"],), I32)]


def _check_range(op: Operation) -> str | None:
    return None if op.attributes["end"] > op.attributes["start"] else "the range is empty"


def _infer_expand(operands: Operands, attributes: Attributes) -> list[Type]:
    shape, axis = shape_of(operands[0].type), attributes["axis"]
    return [with_shape(operands[0].type, (*shape[:axis], 1, *shape[axis:]))]


def _check_expand(op: Operation) -> str | None:
    rank, axis = len(shape_of(op.operands[0].type)), op.attributes["axis"]
    return None if 0 <= axis <= rank else f"axis {axis} is out of range"


def _same_element(op: Operation) -> str | None:
    elements = {element_of(value.type) for value in (*op.operands, *op.results)}
    return None if len(elements) == 1 else f"element types differ: {', '.join(sorted(map(str, elements)))}"


def _check_broadcast(op: Operation) -> str | None:
    before, after = shape_of(op.operands[0].type), shape_of(op.result.type)
    if len(before) != len(after) or any(a not in (1, b) for a, b in zip(before, after, strict=True)):
        return f"cannot broadcast {op.operands[0].type} to {op.result.type}"
    return _same_element(op)


def _check_reshape(op: Operation) -> str | None:
    before, after = op.operands[0].type, op.result.type
    assert isinstance(before, TensorType)
    assert isinstance(after, TensorType)
    return _same_element(op) if before.size == after.size else "the number of elements changes"


def _check_trans(op: Operation) -> str | None:
    rank, order = len(shape_of(op.operands[0].type)), op.attributes["order"]
    return None if sorted(order) == list(range(rank)) else f"order {order} is not a permutation of {rank} axes"


def _infer_trans(operands: Operands, attributes: Attributes) -> list[Type]:
    shape = shape_of(operands[0].type)
    return [with_shape(operands[0].type, tuple(shape[axis] for axis in attributes["order"]))]


def _infer_join(operands: Operands, attributes: Attributes) -> list[Type]:
    return [with_shape(operands[0].type, (*shape_of(operands[0].type), 2))]


def _check_join(op: Operation) -> str | None:
    return None if op.operands[0].type == op.operands[1].type else "operands differ in type"


def _infer_split(operands: Operands, attributes: Attributes) -> list[Type]:
    return [with_shape(operands[0].type, shape_of(operands[0].type)[:-1])] * 2


def _check_split(op: Operation) -> str | None:
    return None if shape_of(op.operands[0].type)[-1] == 2 else "the last axis must have 2 elements"


def _check_cat(op: Operation) -> str | None:
    left, right, out = (shape_of(value.type) for value in (*op.operands, op.result))
    if left[1:] != right[1:] or out != (left[0] + right[0], *left[1:]):
        return "shapes do not fit along the first axis"
    return _same_element(op)


SHAPES = Dialect(
    "tt",
    [
        row(
            "tt.make_range",
            attributes=[attr("end", "i32"), attr("start", "i32")],
            traits=[Trait.PURE],
            format="attr-dict : type($result)",
            infer=_infer_range,
            check=_check_range,
        ),
        row(
            "tt.splat",
            "src: scalar",
            result="tensor",
            traits=[Trait.PURE],
            format="$src : type($src) -> type($result)",
            check=_same_element,
        ),
        row(
            "tt.unsplat",
            "src: tensor",
            traits=[Trait.PURE],
            format="$src : type($src)",
            infer=lambda operands, attributes: [element_of(operands[0].type)],
        ),
        _shape_change(
            "expand_dims",
            "$src attr-dict : type($src) -> type($result)",
            _check_expand,
            attributes=[attr("axis", "i32")],
            infer=_infer_expand,
        ),
        _shape_change("broadcast", "$src : type($src) -> type($result)", _check_broadcast),
        _shape_change(
            "reshape",
            "$src (allow_reorder $allow_reorder)? : type($src) -> type($result)",
            _check_reshape,
            attributes=[attr("allow_reorder", "bool", default=False)],
        ),
        _shape_change(
            "trans",
            "$src attr-dict : type($src) -> type($result)",
            _check_trans,
            attributes=[attr("order", "ints")],
            infer=_infer_trans,
        ),
        row(
            "tt.join",
            "lhs, rhs",
            traits=[Trait.PURE],
            format="$lhs, $rhs : type($lhs) -> type($result)",
            infer=_infer_join,
            check=_check_join,
        ),
        row(
            "tt.split",
            "src: tensor",
            results=2,
            traits=[Trait.PURE],
            format="$src : type($src) -> type($result)",
            infer=_infer_split,
            check=_check_split,
        ),
        row(
            "tt.cat",
            "lhs: tensor, rhs: tensor",
            result="tensor",
            traits=[Trait.PURE],
            format="$lhs, $rhs : type($lhs) -> type($result)",
            check=_check_cat,
        ),
    ],
)
