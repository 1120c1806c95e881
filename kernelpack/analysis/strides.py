"""How far apart the neighbours along an axis of an address lie, as far as its expression tells: by how much places are multiplied."""

from __future__ import annotations

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import Trait, definition, operand
from kernelpack.ir.types import TensorType, shape_of
from kernelpack.ir.views import slot_of

SUMS = ("arith.addi", "arith.subi", "tt.addptr", "arith.extsi", "arith.extui", "arith.trunci", "tt.bitcast")
"""Operations that add their operands, or take one as it is."""
SAME, UNKNOWN = 0, 1
"""All elements along an axis are the same; they may be neighbours in memory."""


class Strides:
    """Callable (value, axis) -> SAME, UNKNOWN, or a number that is larger than 1: neighbours are multiples of it apart.

    A factor that only running tells counts as 2, or as what it is known to be divisible by: an argument that is 1 would be a constant.
    """

    def __init__(self, facts: AxisInfoAnalysis) -> None:
        self._facts = facts
        self._known: dict[tuple[Value, int], int] = {}

    def __call__(self, value: Value, axis: int) -> int:
        if not isinstance(value.type, TensorType) or shape_of(value.type)[axis] == 1:
            return SAME
        key = value, axis
        if key not in self._known:
            self._known[key] = SAME  # what goes around a loop adds nothing to what it begins with
            self._known[key] = self._find(value, axis)
        return self._known[key]

    def _find(self, value: Value, axis: int) -> int:
        op = value.defining_op
        if (slot := slot_of(value)) is not None:
            return self._sum([self(source, axis) for source in slot.source_values()])
        if op is None:
            return UNKNOWN
        match op.name:
            case "tt.splat" | "arith.constant":
                return SAME
            case "tt.broadcast":
                return self(op.operand, axis)
            case "tt.expand_dims":
                return self(op.operand, axis - (axis > op.attributes["axis"]))
            case "arith.muli":
                return self._product(op, axis)
        if op.name in SUMS:
            return self._sum([self(part, axis) for part in op.operands])
        if Trait.ELEMENTWISE in definition(op.name).traits and not any(self(part, axis) for part in op.operands):
            return SAME
        return UNKNOWN

    def _product(self, op: Operation, axis: int) -> int:
        left, right = operand(op, "lhs"), operand(op, "rhs")
        steps = self(left, axis), self(right, axis)
        if SAME not in steps:
            return UNKNOWN
        if steps == (SAME, SAME):
            return SAME
        factor = left if steps[0] == SAME else right
        return max(steps) * max(2, self._facts[factor].divisibility[axis])

    @staticmethod
    def _sum(steps: list[int]) -> int:
        return min((step for step in steps if step != SAME), default=SAME)
