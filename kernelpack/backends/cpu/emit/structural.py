"""Evaluates the operations that move elements: each asks for its operand at another place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kernelpack.backends.cpu.emit.elements import constant, element_bytes, from_memory, memory_type
from kernelpack.backends.cpu.emit.permuted import bits_of, permuted
from kernelpack.backends.cpu.emit.places import FIRST, Affine, Index, Lanes, Uniform, Vector
from kernelpack.backends.cpu.emit.reloads import again
from kernelpack.backends.cpu.plan.buffers import moves_unit_axes
from kernelpack.ir.core import Operation
from kernelpack.ir.types import I32, element_of, shape_of
from kernelpack.llvm.text import element_type, iota, literal, vector_type, vector_width

if TYPE_CHECKING:
    from kernelpack.backends.cpu.emit.evaluate import Evaluator


def _constant(ev: Evaluator, op: Operation, index: Index) -> Lanes:
    return Uniform(constant(op.attributes["value"], element_of(op.result.type)), 0)


def _splat(ev: Evaluator, op: Operation, index: Index) -> Lanes:
    return again(ev, op.operand, index) or ev.evaluate(op.operand, ())


def _range(ev: Evaluator, op: Operation, index: Index) -> Lanes:
    place = index[0].plus(op.attributes["start"])
    first = ev.position(place, "i32")
    depth = place.depth if place.base is not None else 0
    return Affine(first, 1, depth) if place.lanes else Uniform(first, depth)


def _expand_dims(ev: Evaluator, op: Operation, index: Index) -> Lanes:
    axis = op.attributes["axis"]
    return ev.evaluate(op.operand, (*index[:axis], *index[axis + 1 :]))


def _broadcast(ev: Evaluator, op: Operation, index: Index) -> Lanes:
    extents = shape_of(op.operand.type)
    return ev.evaluate(op.operand, tuple(FIRST if e == 1 else p for e, p in zip(extents, index, strict=True)))


def _trans(ev: Evaluator, op: Operation, index: Index) -> Lanes:
    source = [FIRST] * len(index)
    for position, axis in enumerate(op.attributes["order"]):
        source[axis] = index[position]
    return ev.evaluate(op.operand, tuple(source))


def _reshape(ev: Evaluator, op: Operation, index: Index) -> Lanes:
    """A reshape that only moves axes of extent 1 renames places; any other reads the source's row-major buffer in another shape."""
    source, result = shape_of(op.operand.type), shape_of(op.result.type)
    if moves_unit_axes(op):
        places = iter(place for place, extent in zip(index, result, strict=True) if extent > 1)
        return ev.evaluate(op.operand, tuple(FIRST if extent == 1 else next(places) for extent in source))
    buffer = ev.program.plain[op.operand][len(source) - 1]
    return ev.read(ev.view(buffer, result), index)


def _join(ev: Evaluator, op: Operation, index: Index) -> Lanes:
    which = index[-1]
    if which.base is None and not which.lanes:
        return ev.evaluate(op.operands[which.offset], index[:-1])
    left, right = (ev.evaluate(operand, index[:-1]) for operand in op.operands)
    depth = max(left.depth, right.depth, which.depth)
    with ev.em.into(ev.at(depth)):
        position = ev.position(which, "i32")
        if which.lanes:  # neighbouring lanes take turns
            position = ev.vector(Affine(position, 1, depth), I32)
        first = ev.em.compare("icmp", "eq", position, literal(0, position.type))
        lhs, rhs = op.operands
        a, b = ev.vector(left, lhs.type), ev.vector(right, rhs.type)
        return Vector(ev.em.select(first, a, b), depth)


def _gather(ev: Evaluator, op: Operation, index: Index) -> Lanes:
    """Reads the source's buffer at indices that are computed; indices beyond its extent wrap around."""
    (source, which), axis = op.operands, op.attributes["axis"]
    buffer = next(iter(ev.program.plain[source].values()))
    bits = bits_of(which, axis)
    if bits is not None and index[axis].lanes and buffer.strides[axis] == 1 and ev.lane_step > 1:
        return permuted(ev, buffer, index, axis, bits)
    indices = ev.evaluate(which, index)
    kind, size = memory_type(buffer.element), element_bytes(buffer.element)
    base = ev.pointer(buffer, tuple(FIRST if at == axis else place for at, place in enumerate(index)))
    depth = max(indices.depth, max((place.depth for place in index if place.base is not None), default=0))
    lane_axis = next((at for at, place in enumerate(index) if place.lanes), None)
    with ev.em.into(ev.at(depth)):
        single = lane_axis in (None, axis) and isinstance(indices, Uniform)
        at = indices.val if single and isinstance(indices, Uniform) else ev.vector(indices, which.type)
        width = vector_width(at.type)
        wide = ev.em.cast("sext", at, vector_type("i64", width)) if element_type(at.type) != "i64" else at
        inside = ev.em.binary("and", wide, literal(buffer.shape[axis] - 1, wide.type))
        offsets = ev.em.binary("mul", inside, literal(buffer.strides[axis] * size, wide.type))
        if single:
            return Uniform(from_memory(ev.em, ev.em.load(kind, ev.em.offset(base, offsets), size), buffer.element), depth)
        if lane_axis not in (None, axis):
            offsets = ev.em.binary("add", offsets, iota("i64", width, buffer.strides[lane_axis] * size))
        pointers = ev.em.op(f"<{width} x ptr>", f"getelementptr i8, {base}, {offsets}")
        return Vector(from_memory(ev.em, ev.gather(vector_type(kind, width), pointers, None, None), buffer.element), depth)


STRUCTURAL: dict[str, Callable[[Evaluator, Operation, Index], Lanes]] = {
    "arith.constant": _constant,
    "tt.splat": _splat,
    "tt.make_range": _range,
    "tt.expand_dims": _expand_dims,
    "tt.broadcast": _broadcast,
    "tt.trans": _trans,
    "tt.reshape": _reshape,
    "tt.join": _join,
    "tt.gather": _gather,
    "tt.load": lambda ev, op, index: ev.load(op, index),
}
