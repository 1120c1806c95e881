"""Turns reductions of pairs, whose result goes back to both elements, into gathers along the last axis.

Sorting networks are written so: a tile is seen as [..., 2, ...], `sum(tile * [1, 0], axis)` picks the first of each pair, and the
result is broadcast and reshaped to the tile again. Every step then is one nest over the tile, where reshapes would need a buffer each.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from kernelpack.ir.core import Attribute, Builder, Operation, Value
from kernelpack.ir.dialect import Trait, definition, facts, is_pure
from kernelpack.ir.types import I32, TensorType, bit_width, element_of, is_int, shape_of, with_element
from kernelpack.passes.canonicalize.arithmetic import constant_of, made_by


def gather_pairs(module: Operation) -> Operation:
    """Rewrites a module in place and returns it. What nobody uses any more stays."""
    for op in list(module.walk()):
        if op.name == "tt.reshape":
            new = _both(op) or _counted(op)
            if new is not None:
                op.result.replace_all_uses_with(new)
                op.erase()
    return module


class _Pairs:
    """The elements of a tile of `kind` that are `distance` apart along its last axis, and were seen as `axis` of a reshaped tile."""

    def __init__(self, build: Builder, kind: TensorType, axis: int, distance: int) -> None:
        self.build = build
        self.kind = kind
        self.axis = axis
        self.distance = distance
        self.picked: dict[tuple[Value, int], Value] = {}

    def pick(self, value: Value, which: int) -> Value | None:
        """Returns, for each element, what the first (0) or second (1) of its pair has in a reshaped tile; None where that is not known."""
        if (value, which) not in self.picked:
            made = self._pick(value, which)
            if made is None:
                return None
            self.picked[value, which] = made
        return self.picked[value, which]

    def _pick(self, value: Value, which: int) -> Value | None:
        kind = with_element(self.kind, element_of(value.type))
        number, known, op = constant_of(value), _along(value, self.axis), value.defining_op
        if number is not None:
            return self.build.constant(number, kind)
        if known is not None:
            return self.build.constant(known[which], kind)
        if op is None:
            return None
        if op.name == "tt.reshape" and shape_of(op.operand.type) == self.kind.shape:
            return self.gather(op.operand, which)
        if Trait.ELEMENTWISE not in definition(op.name).traits or not is_pure(op):
            return None
        operands = [self.pick(operand, which) for operand in op.operands]
        found = [operand for operand in operands if operand is not None]
        return self.build.value(op.name, found, _attributes(op), kind) if len(found) == len(operands) else None

    def gather(self, source: Value, which: int) -> Value:
        """Returns that element of each pair of a tile. What only renames bits comes after: both then read one buffer."""
        renamed = made_by(source, "tt.bitcast")
        if renamed is not None:
            return self.build.value("tt.bitcast", [self.gather(renamed.operand, which)], None, source.type)
        return self.build.value("tt.gather", [source, self.places(which)], {"axis": len(self.kind.shape) - 1}, source.type)

    def places(self, which: int) -> Value:
        """Returns where along the last axis that element of each pair is."""
        row = _row(self.build, self.kind)
        others = self.kind.shape[-1] - 1 - self.distance
        name, number = ("arith.ori", self.distance) if which else ("arith.andi", others)
        places = self.build.value(name, [row, self.build.constant(number, row.type)])
        return self.build.value("tt.broadcast", [places], None, with_element(self.kind, I32))


def _both(reshape: Operation) -> Value | None:
    """Returns what a reshape gives that brings the reductions of pairs back to both elements."""
    broadcast = made_by(reshape.operand, "tt.broadcast")
    expand = made_by(broadcast.operand, "tt.expand_dims") if broadcast is not None else None
    reduce = made_by(expand.operand, "tt.reduce") if expand is not None else None
    if reduce is None or expand is None or len(reduce.operands) != 1:
        return None
    axis = reduce.attributes["axis"]
    shape, kind = shape_of(reduce.operand.type), reshape.result.type
    assert isinstance(kind, TensorType)
    distance = math.prod(shape[axis + 1 :])
    combine, returned = reduce.body.operations[0], reduce.body.terminator
    if (
        shape[axis] != 2
        or expand.attributes["axis"] != axis
        or shape_of(reshape.operand.type) != shape
        or 2 * distance > kind.shape[-1]
        or len(reduce.body.operations) != 2
        or Trait.ELEMENTWISE not in definition(combine.name).traits
        or combine.operands != reduce.body.arguments
        or returned.operands != combine.results
    ):
        return None
    build = Builder.before(reshape)
    pairs = _Pairs(build, kind, axis, distance)
    first, second = (pairs.pick(reduce.operand, which) for which in (0, 1))
    if first is None or second is None:
        return None
    return build.value(combine.name, [first, second], _attributes(combine), kind)


def _counted(reshape: Operation) -> Value | None:
    """Returns what a reshape gives of a tile that only counts along one axis: index arithmetic on the last axis of the result."""
    source, shape, kind = reshape.operand, shape_of(reshape.operand.type), reshape.result.type
    axes = [axis for axis, extent in enumerate(shape) if _along(source, axis) is not None and extent == 2]
    assert isinstance(kind, TensorType)
    if len(axes) != 1:
        return None
    distance = math.prod(shape[axes[0] + 1 :])
    if 2 * distance > kind.shape[-1] or _along(source, axes[0]) != (0, 1) or element_of(kind) != I32:
        return None
    build = Builder.before(reshape)
    row = _row(build, kind)
    high = build.value("arith.shrui", [row, build.constant(distance.bit_length() - 1, row.type)])
    return build.value("tt.broadcast", [build.value("arith.andi", [high, build.constant(1, row.type)])], None, kind)


def _attributes(op: Operation) -> dict[str, Attribute]:
    """Returns the attributes of an operation, without what is promised of its results."""
    return {name: value for name, value in op.attributes.items() if name not in facts(op)}


def _row(build: Builder, kind: TensorType) -> Value:
    """Returns the places along the last axis of a tile, with extent 1 along the others."""
    row = build.value("tt.make_range", [], {"start": 0, "end": kind.shape[-1]}, TensorType((kind.shape[-1],), I32))
    for _ in kind.shape[1:]:
        row = build.value("tt.expand_dims", [row], {"axis": 0})
    return row


_ALIKE = ("tt.broadcast", "arith.extsi", "arith.extui", "arith.trunci")
_COMPUTED: dict[str, Callable[[int, int], int]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.xori": operator.xor,
}


def _along(value: Value, axis: int) -> tuple[int, int] | None:
    """Returns the two numbers, each 0 or 1, that a tile of integers holds along an axis of extent 2; None where it may hold others."""
    number = constant_of(value)
    if number is not None:
        return (number, number) if number in (0, 1) and isinstance(number, int) else None
    op = value.defining_op
    if op is None or not is_int(value.type) or bit_width(value.type) == 1:
        return None
    if op.name == "tt.make_range":
        return (0, 1) if (op.attributes["start"], op.attributes["end"], axis) == (0, 2, 0) else None
    if op.name == "tt.expand_dims" and axis != op.attributes["axis"]:
        return _along(op.operand, axis - (axis > op.attributes["axis"]))
    if op.name in _ALIKE and shape_of(op.operand.type)[axis] == 2:
        return _along(op.operand, axis)
    if op.name in _COMPUTED:
        both = [_along(operand, axis) for operand in op.operands]
        if both[0] is not None and both[1] is not None:
            made = [_COMPUTED[op.name](left, right) for left, right in zip(both[0], both[1], strict=True)]
            return (made[0], made[1]) if set(made) <= {0, 1} else None
    return None
