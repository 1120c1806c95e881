"""Gathers in which each element takes that of its partner, whose place differs in known bits: steps of sorting networks, reversals."""

from __future__ import annotations

from typing import NamedTuple

from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import operand
from kernelpack.ir.types import shape_of
from kernelpack.layout.encoding import layout_of
from kernelpack.passes.canonicalize.arithmetic import constant_of

_SAME = ("tt.broadcast", "arith.extsi", "arith.extui", "ttg.convert_layout")
"""Operations whose result holds what its operand does."""


class Partner(NamedTuple):
    """The bits in which the register and the lane of an element's partner differ from its own."""

    register: int
    lane: int


def partner_of(gather: Operation) -> Partner | None:
    """Returns where a gather finds each element, if all have a partner in the same warp; None otherwise."""
    source = operand(gather, "src")
    layout, distance = layout_of(source), distance_of(gather)
    if distance is None or layout != layout_of(gather.result):
        return None
    axis = gather.attributes["axis"]
    place = layout.preimage([distance if other == axis else 0 for other in range(len(layout.shape))])
    if place is None or any(bits for name, bits in place.items() if name not in Partner._fields):
        return None
    return Partner(place["register"], place["lane"])


def distance_of(gather: Operation) -> int | None:
    """Returns the bits in which the places of two partners along the axis differ; None where the indices are not of this kind."""
    shape, axis, indices = shape_of(operand(gather, "src").type), gather.attributes["axis"], operand(gather, "indices")
    return _distance(indices, axis, shape[axis]) if shape_of(indices.type) == shape else None


def _distance(value: Value, axis: int, size: int) -> int | None:
    """Returns the bits in which numbers along an axis, of so many, differ from where they are."""
    op = value.defining_op
    if op is None or axis < 0 or shape_of(value.type)[axis] != size:
        return None
    if op.name == "tt.make_range":
        return 0 if op.attributes["start"] == 0 else None
    if op.name in _SAME:
        return _distance(op.operand, axis, size)
    if op.name == "tt.expand_dims" and axis != op.attributes["axis"]:
        return _distance(op.operand, axis - (axis > op.attributes["axis"]), size)
    if op.name == "tt.reshape" and shape_of(op.operand.type) == (size,):
        return _distance(op.operand, 0, size)
    if op.name == "arith.xori":
        places, number = op.operands
        inner, bits = _distance(places, axis, size), constant_of(number)
        return inner ^ bits if inner is not None and isinstance(bits, int) and 0 <= bits < size else None
    if op.name == "arith.subi":
        number, places = op.operands
        inner = _distance(places, axis, size)
        return inner ^ (size - 1) if inner is not None and constant_of(number) == size - 1 else None
    return None
