"""dce: what no effect depends on is erased, also where loops carry it around or branches yield it."""

from __future__ import annotations

from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import Trait, definition
from kernelpack.ir.rewrite import is_harmless
from kernelpack.ir.views import STRUCTURED, decided_by, erase_slots, slots


def dce(module: Operation) -> None:
    """Erases operations, results of scf.if, and values that scf.for and scf.while carry, if nothing needs them, in place."""
    live = _Liveness(module)
    for op in reversed(list(module.walk())):
        if op is not module and op not in live.ops and Trait.TERMINATOR not in definition(op.name).traits:
            op.drop()
    erase_slots(slot for op, slot in live.slots if op in live.ops and live.values.isdisjoint(slot.values))


class _Liveness:
    """The operations and values that something with an effect needs, directly or not."""

    def __init__(self, module: Operation) -> None:
        self.ops: set[Operation] = set()
        self.values: set[Value] = set()
        self.slots = [(op, slot) for op in module.walk() for slot in slots(op)]
        self.slot_of = {value: (op, slot) for op, slot in self.slots for value in slot.values}
        self._pending: list[Value] = []
        for op in module.walk():
            if op is not module and not is_harmless(op):  # what is around it stays with it
                self._need(op)
        while self._pending:
            self._trace(self._pending.pop())

    def _need(self, op: Operation) -> None:
        """An operation stays: what it needs to run at all does too."""
        if op in self.ops:
            return
        self.ops.add(op)
        if op.parent_op is not None:
            self._need(op.parent_op)
        if op.name not in STRUCTURED:
            self._pending.extend(op.operands)
            for region in op.regions:
                for block in region.blocks:
                    if block.operations and Trait.TERMINATOR in definition(block.terminator.name).traits:
                        self._pending.extend(block.terminator.operands)
        else:
            self._pending.extend(decided_by(op))

    def _trace(self, value: Value) -> None:
        """A value is used: what it comes from stays."""
        if value in self.values:
            return
        self.values.add(value)
        if value in self.slot_of:
            op, slot = self.slot_of[value]
            self._need(op)
            self._pending.extend(slot.source_values())
        elif value.defining_op is not None:
            self._need(value.defining_op)
