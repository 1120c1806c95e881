"""Erases operations that only compute values nobody uses, and loop-carried values that only feed themselves."""

from __future__ import annotations

from collections.abc import Sequence

from kernelpack.ir.core import BlockArgument, Operation, OpResult, Value
from kernelpack.ir.dialect import Effect, effects_of

_HARMLESS = frozenset({Effect.READ_GLOBAL, Effect.READ_SHARED, Effect.ALLOCATE_SHARED})


def erase_dead(function: Operation) -> None:
    """Rewrites a function in place. An operation stays if it changes the world or if something that stays needs it."""
    _Liveness(function).sweep()


class _Liveness:
    def __init__(self, function: Operation) -> None:
        self.function = function
        self.operations: set[Operation] = set()
        self.values: set[Value] = set()
        self.pending: list[Value] = []
        for op in function.walk():
            if op is not function and _stays(op):
                self._operation(op)
        while self.pending:
            self._value(self.pending.pop())

    def _operation(self, op: Operation) -> None:
        """Marks an operation with what it is nested in, and the values they need to run at all."""
        while op is not self.function and op not in self.operations:
            self.operations.add(op)
            if op.name == "scf.for":
                self._values(op.operands[:3])
            elif op.name != "scf.yield":  # what a region yields is needed value by value
                self._values(op.operands)
            parent = op.parent_op
            assert parent is not None
            op = parent

    def _values(self, values: Sequence[Value]) -> None:
        for value in values:
            if value not in self.values:
                self.values.add(value)
                self.pending.append(value)

    def _value(self, value: Value) -> None:
        """Marks what a live value comes from."""
        if isinstance(value, OpResult):
            op, index = value.owner, value.index
            self._operation(op)
            if op.name == "scf.for":
                self._values([op.body.arguments[index + 1]])
            elif op.name == "scf.if":
                self._values([region.block.terminator.operands[index] for region in op.regions])
        elif isinstance(value, BlockArgument) and value.owner.parent is not None:
            loop = value.owner.parent.parent
            if loop is not None and loop.name == "scf.for" and value.index > 0:
                self._values([loop.operands[value.index + 2], loop.body.terminator.operands[value.index - 1]])

    def sweep(self) -> None:
        for op in list(self.function.walk()):
            if op.name == "scf.for" and op in self.operations:
                self._shrink(op, [argument in self.values for argument in op.body.arguments[1:]])
            elif op.name == "scf.if" and op in self.operations:
                self._shrink(op, [result in self.values for result in op.results])
        for op in list(self.function.walk()):
            terminator = op.name in ("scf.yield", "tt.reduce.return", "tt.scan.return")
            if op is not self.function and op not in self.operations and not terminator and op.parent is not None:
                inside = any(parent.name in ("tt.reduce", "tt.scan") for parent in op.ancestors())
                if not inside:
                    op.drop()
        for op in self.function.walk():
            if op.name == "scf.for":
                for index in reversed(range(1, len(op.body.arguments))):
                    if op.body.arguments[index] not in self.values:
                        op.body.erase_argument(index)

    def _shrink(self, op: Operation, kept: list[bool]) -> None:
        """Drops the carried values and results that are not live; dead block arguments go once their users are gone."""
        for region in op.regions:
            if region.blocks:
                terminator = region.block.terminator
                terminator.set_operands([value for value, keep in zip(terminator.operands, kept, strict=True) if keep])
        if op.name == "scf.for":
            carried = [value for value, keep in zip(op.operands[3:], kept, strict=True) if keep]
            op.set_operands([*op.operands[:3], *carried])
        op.results = [result for result, keep in zip(op.results, kept, strict=True) if keep]
        for index, result in enumerate(op.results):
            result.index = index


def _stays(op: Operation) -> bool:
    if op.name in ("tt.return", "scf.while", "scf.condition"):
        return True
    if op.name == "scf.yield":
        return op.parent_op is not None and op.parent_op.name == "scf.while"
    if op.name == "ttg.local_alloc":  # what it writes matters only to those who read it
        return False
    return not op.regions and bool(effects_of(op) - _HARMLESS)
