"""Which axis of every tile runs along the vector lanes.

A matrix product whose result feeds a row reduction or another product has its rows (M) in the lanes: row maxima and sums are
then lane-wise. Every other product has columns (N) in the lanes of its result. Loads prefer the axis that is contiguous in memory.
"""

from __future__ import annotations

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.analysis.call_graph import enclosing_function
from kernelpack.backends.cpu.facts.affine import Stride, strides
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import Trait, definition, operand, operand_name
from kernelpack.ir.types import TensorType, shape_of
from kernelpack.ir.views import Carried, For, Slot, slot_of

Preference = tuple[int | None, int]
"""An axis, and how much depends on it: 0 nothing, 1 contiguous loads, 2 a buffer that already has it."""

NONE: Preference = (None, 0)
_GROUP = 16
"""So many neighbours are at least a vector: the axis is one to put in the lanes."""


class Axes:
    """Lane-axis preferences of the tiles of one kernel."""

    def __init__(self) -> None:
        self._preferences: dict[Value, Preference] = {}
        self._strides: dict[Value, tuple[Stride, ...]] = {}
        self._infos: dict[Operation, AxisInfoAnalysis] = {}
        self._visiting: set[Value] = set()

    def memory_axis(self, pointer: Value) -> int | None:
        """Returns the axis along which neighbouring elements are neighbours in memory."""
        shape = shape_of(pointer.type)
        for axis in reversed(range(len(shape))):
            if shape[axis] > 1 and strides(pointer, self._strides)[axis] == 1:
                return axis
        groups = self._neighbours(pointer)
        return next((axis for axis in reversed(range(len(shape))) if groups[axis] >= _GROUP), None)

    def _neighbours(self, pointer: Value) -> tuple[int, ...]:
        """Returns how many neighbouring elements along each axis are neighbours in memory, as parts of rows are (x % columns)."""
        op = pointer.defining_op
        if op is None:
            return (1,) * len(shape_of(pointer.type))
        function = enclosing_function(op)
        if function not in self._infos:
            self._infos[function] = AxisInfoAnalysis(function)
        return self._infos[function][pointer].contiguity

    def lane_axis(self, value: Value) -> int:
        """Returns the axis to use for a tile: the preferred one, or the last."""
        axis, _ = self.preference(value)
        return axis if axis is not None else len(shape_of(value.type)) - 1

    def firm_axis(self, value: Value) -> int | None:
        """Returns the axis on which something depends for a tile; None where any will do."""
        axis, strength = self.preference(value)
        return axis if strength > 0 else None

    def preference(self, value: Value) -> Preference:
        """Returns the preferred axis of a tile and its strength."""
        if len(shape_of(value.type)) < 2:
            return (0, 0)
        if value not in self._preferences:
            if value in self._visiting:
                return NONE
            self._visiting.add(value)
            self._preferences[value] = self._compute(value)
            self._visiting.discard(value)
        return self._preferences[value]

    def _compute(self, value: Value) -> Preference:
        slot, op = slot_of(value), value.defining_op
        if slot is not None:
            return self._passed(slot, op)
        if op is None:
            return NONE
        match op.name:
            case "tt.load" | "tt.atomic_rmw" | "tt.atomic_cas":
                pointer, *others = op.operands
                axis = self.memory_axis(pointer)
                return (axis, 1) if axis is not None else self._best(others)
            case "tt.dot":
                return (self.dot_axis(op), 2)
            case "tt.trans":
                axis, strength = self.preference(op.operand)
                return (op.attributes["order"].index(axis), strength) if axis is not None else NONE
            case "tt.broadcast" | "tt.expand_dims" | "tt.splat":
                return NONE
            case "tt.reduce":
                source, *_ = op.operands
                axis, strength = self.preference(source)
                reduced = op.attributes["axis"]
                if axis is None or axis == reduced:
                    return NONE
                return (axis - (axis > reduced), strength)
            case "tt.reshape":
                axis, strength = self.preference(op.operand)
                last = axis == len(shape_of(op.operand.type)) - 1
                return (len(shape_of(value.type)) - 1, strength) if last else NONE
            case "tt.map_elementwise":
                return (len(shape_of(value.type)) - 1, 2)
            case "tt.gather":
                return self.preference(operand(op, "indices"))
            case "tt.split":  # takes the last axis away
                axis, strength = self.preference(op.operand)
                return NONE if axis == len(shape_of(value.type)) else (axis, strength)
            case "tt.scan" | "tt.join":
                return self._best(op.operands)
            case _:
                return self._best(op.operands) if Trait.ELEMENTWISE in definition(op.name).traits else NONE

    def _best(self, values: list[Value]) -> Preference:
        best = NONE
        for value in values:
            if isinstance(value.type, TensorType):
                candidate = self.preference(value)
                best = candidate if candidate[1] > best[1] else best
        return best

    def _passed(self, slot: Slot, op: Operation | None) -> Preference:
        """Returns the preference of what control flow passes along. A loop keeps it in a buffer, and what a for yields counts first."""
        axis, strength = self._best([slot.yielded, slot.initial] if isinstance(slot, Carried) else slot.source_values())
        if op is not None and op.name == "scf.if":
            return axis, strength
        return (axis, 2) if axis is not None else NONE

    def dot_axis(self, dot: Operation) -> int:
        """Returns the axis of a product's result that runs along the lanes."""
        rank = len(shape_of(dot.result.type))
        return rank - 2 if feeds_rows(dot.result) else rank - 1


def feeds_rows(result: Value) -> bool:
    """Whether a product's result goes, element by element, into a reduction of its last axis or into another product's `a`."""
    shape = shape_of(result.type)
    seen: set[Value] = set()
    pending = [result]
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        for user, position in value.uses:
            if user.name == "tt.reduce" and user.attributes["axis"] == len(shape) - 1:
                return True
            if user.name == "tt.dot" and operand_name(user, position) == "a":
                return True
            if user.name == "scf.yield" and user.parent_op is not None:
                parent = user.parent_op
                pending.append(parent.results[position])
                if parent.name == "scf.for":
                    pending.append(For.of(parent).carries(position).argument)
            elif Trait.ELEMENTWISE in definition(user.name).traits:
                pending += [other for other in user.results if shape_of(other.type) == shape]
    return False
