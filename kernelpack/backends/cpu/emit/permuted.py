"""Gathers whose indices are an element's own place with some bits set, cleared or flipped: a vector is read whole, and its lanes are shuffled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelpack.backends.cpu.emit.elements import element_bytes, from_memory, memory_type
from kernelpack.backends.cpu.emit.places import FIRST, Index, Vector
from kernelpack.backends.cpu.facts.affine import constant_of
from kernelpack.backends.cpu.plan.buffers import Buffer
from kernelpack.ir.core import Value
from kernelpack.ir.types import shape_of
from kernelpack.llvm.text import literal, vector_type

if TYPE_CHECKING:
    from kernelpack.backends.cpu.emit.evaluate import Evaluator


@dataclass(frozen=True)
class Bits:
    """The number (place & kept) ^ flipped: each bit of it is one of the place or a constant."""

    kept: int
    flipped: int

    def of(self, place: int) -> int:
        return (place & self.kept) ^ self.flipped


_CHANGES: dict[str, Callable[[Bits, int], Bits]] = {
    "arith.andi": lambda bits, number: Bits(bits.kept & number, bits.flipped & number),
    "arith.ori": lambda bits, number: Bits(bits.kept & ~number, bits.flipped | number),
    "arith.xori": lambda bits, number: Bits(bits.kept, bits.flipped ^ number),
}


def bits_of(indices: Value, axis: int) -> Bits | None:
    """Returns what a tile of integers makes of the bits of an element's place along an axis, or None where it makes something else."""
    op = indices.defining_op
    if op is None:
        return None
    match op.name:
        case "tt.make_range" if op.attributes["start"] == 0:
            return Bits(-1, 0)
        case "tt.expand_dims" if op.attributes["axis"] != axis:
            return bits_of(op.operand, axis - (op.attributes["axis"] < axis))
        case "tt.broadcast" if shape_of(op.operand.type)[axis] == shape_of(indices.type)[axis]:
            return bits_of(op.operand, axis)
        case "arith.andi" | "arith.ori" | "arith.xori":
            value, other = op.operands
            bits, number = bits_of(value, axis), constant_of(other)
            return _CHANGES[op.name](bits, number) if bits is not None and number is not None else None
    return None


def permuted(ev: Evaluator, buffer: Buffer, index: Index, axis: int, bits: Bits) -> Vector:
    """Returns the elements of a buffer, which lie side by side along the axis, at what `bits` makes of their places along it.

    The first of them is at a multiple of the number of lanes: what happens to the lower bits is the same for each vector.
    """
    em, place, within = ev.em, index[axis], ev.width - 1
    row = tuple(FIRST if at == axis else other for at, other in enumerate(index))
    depth = max((other.depth for other in index if other.base is not None), default=0)
    kind, size = memory_type(buffer.element), element_bytes(buffer.element)
    above = Bits(bits.kept & (buffer.shape[axis] - 1) & ~within, bits.flipped & (buffer.shape[axis] - 1) & ~within)
    base = ev.pointer(buffer, row)
    first = literal(above.of(place.offset), "i64") if place.base is None else None
    position = ev.position(place.one()) if first is None else first
    with em.into(ev.at(depth)):
        if first is None:
            kept = em.binary("and", position, literal(above.kept, "i64"))
            position = em.binary("xor", kept, literal(above.flipped, "i64"))
        address = em.op("ptr", f"getelementptr {kind}, {base}, {position}")
        loaded = em.load(vector_type(kind, ev.width), address, size)
        lanes = [bits.of(lane) & within for lane in range(ev.width)]
        if lanes != list(range(ev.width)):
            loaded = em.shuffle(loaded, None, lanes)
        return Vector(from_memory(em, loaded, buffer.element), depth)
