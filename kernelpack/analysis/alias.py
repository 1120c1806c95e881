"""Which allocation a buffer value may stand for: views and values carried through control flow refer to where they came from."""

from __future__ import annotations

from collections.abc import Mapping

from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import Effect, definition
from kernelpack.ir.types import MemDescType

Aliases = Mapping[Value, frozenset[Operation]]


def buffer_aliases(function: Operation) -> Aliases:
    """Returns the operations that allocate what each buffer value of a function may refer to."""
    found: dict[Value, frozenset[Operation]] = {}

    def join(value: Value, sources: frozenset[Operation]) -> bool:
        if not isinstance(value.type, MemDescType) or sources <= found.get(value, frozenset()):
            return False
        found[value] = found.get(value, frozenset()) | sources
        return True

    def flow(source: Value, target: Value) -> bool:
        return join(target, found.get(source, frozenset()))

    changed = True
    while changed:
        changed = False
        for op in function.walk():
            if Effect.ALLOCATE_SHARED in definition(op.name).effects and op.results:
                changed |= join(op.result, frozenset([op]))
            elif op.name == "scf.for":
                for index, argument in enumerate(op.body.arguments[1:]):
                    changed |= flow(op.operands[3 + index], argument)
                    changed |= flow(op.body.terminator.operands[index], argument)
                    changed |= flow(argument, op.results[index])
            elif op.name == "scf.if":
                for region in op.regions:
                    for result, value in zip(
                        op.results, region.block.terminator.operands if region.blocks else (), strict=False
                    ):
                        changed |= flow(value, result)
            elif not op.regions:
                for operand in op.operands:
                    for result in op.results:
                        changed |= flow(operand, result)
    return found
