"""What several passes need to know of structured control flow: which values a loop or branch passes along, and how to stop it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernelpack.ir.core import BlockArgument, Operation, OpResult, Region, Value

STRUCTURED = ("scf.if", "scf.for", "scf.while")


@dataclass(frozen=True)
class Slot:
    """One value that control flow passes along: the values it becomes, and the operands (operation, index) it comes from.

    scf.for: result and body argument, from initial operand and yield. scf.if: result, from both yields. scf.while has two
    kinds: the condition's argument, from initial operand and yield; the body's argument and the result, from scf.condition.
    """

    values: tuple[Value, ...]
    sources: tuple[tuple[Operation, int], ...]

    def source_values(self) -> list[Value]:
        return [op.operands[index] for op, index in self.sources]


def slots(op: Operation) -> list[Slot]:
    """Returns the slots of a structured operation, in order; none for other operations."""
    if op.name == "scf.for":
        rows = enumerate(zip(op.results, op.body.arguments[1:], strict=True))
        return [Slot(values, ((op, 3 + index), (op.body.terminator, index))) for index, values in rows]
    if op.name == "scf.if":
        yields = [region.block.terminator for region in op.regions if region.blocks]
        return [Slot((result,), tuple((source, result.index) for source in yields)) for result in op.results]
    if op.name == "scf.while":
        before, after = (region.block for region in op.regions)
        rows = enumerate(zip(op.results, after.arguments, strict=True))
        return [
            *(Slot((argument,), ((op, argument.index), (after.terminator, argument.index))) for argument in before.arguments),
            *(Slot(values, ((before.terminator, 1 + index),)) for index, values in rows),
        ]
    return []


def erase_slots(dead: Iterable[Slot]) -> None:
    """Removes slots whose values nobody uses but other slots of the same call."""
    dead = list(dead)
    indexes: dict[Operation, set[int]] = {}
    for slot in dead:
        for op, index in slot.sources:
            indexes.setdefault(op, set()).add(index)
    for op, gone in indexes.items():
        op.set_operands([value for index, value in enumerate(op.operands) if index not in gone])
    for slot in dead:
        for value in slot.values:
            if isinstance(value, OpResult):
                value.owner.erase_result(value.index)
            elif isinstance(value, BlockArgument):
                value.owner.erase_argument(value.index)


def is_inside(op: Operation, region: Region) -> bool:
    """Whether an operation is nested in a region, however deep."""
    while op.parent is not None and op.parent.parent is not None:
        if op.parent.parent is region:
            return True
        outer = op.parent.parent.parent
        if outer is None:
            return False
        op = outer
    return False
