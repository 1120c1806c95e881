"""Which bytes of which allocation a buffer value may stand for: views, and values carried through control flow, refer to where
they came from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import Effect, definition, operand
from kernelpack.ir.types import MemDescType, Type, bit_width
from kernelpack.ir.views import STRUCTURED, slots

Aliases = Mapping[Value, frozenset[Operation]]
INDEX = "ttg.memdesc_index"
"""The view of one buffer among several that lie one after the other."""


@dataclass(frozen=True)
class Part:
    """Bytes [start, end) of what an operation allocates."""

    op: Operation
    start: int
    end: int


def buffer_bytes(kind: Type) -> int:
    """Returns the size of a buffer, in which a boolean takes a byte."""
    assert isinstance(kind, MemDescType)
    return math.prod(kind.shape) * max(8, bit_width(kind)) // 8


def buffer_aliases(function: Operation) -> Aliases:
    """Returns the operations that allocate what each buffer value of a function may refer to."""
    return {value: frozenset(part.op for part in parts) for value, parts in buffer_parts(function).items()}


def buffer_parts(function: Operation) -> Mapping[Value, frozenset[Part]]:
    """Returns what each buffer value of a function may refer to, as small as constant indices tell."""
    found: dict[Value, frozenset[Part]] = {}

    def join(value: Value, parts: frozenset[Part]) -> bool:
        if not isinstance(value.type, MemDescType) or parts <= found.get(value, frozenset()):
            return False
        found[value] = found.get(value, frozenset()) | parts
        return True

    changed = True
    while changed:
        changed = False
        for op in function.walk():
            if Effect.ALLOCATE_SHARED in definition(op.name).effects and op.results:
                changed |= join(op.result, frozenset([Part(op, 0, buffer_bytes(op.result.type))]))
            elif op.name in STRUCTURED:
                for slot in slots(op):
                    parts = frozenset[Part]().union(*(found.get(source, frozenset()) for source in slot.source_values()))
                    for value in slot.values:
                        changed |= join(value, parts)
            elif op.name == INDEX:
                changed |= join(op.result, _indexed(op, found.get(operand(op, "src"), frozenset())))
            elif not op.regions:
                for source in op.operands:
                    for result in op.results:
                        changed |= join(result, found.get(source, frozenset()))
    return found


def _indexed(op: Operation, parts: frozenset[Part]) -> frozenset[Part]:
    """Returns what is left of the parts of a buffer in the view of one of its members."""
    buffer, number = op.operands
    index = number.defining_op
    whole, size = buffer_bytes(buffer.type), buffer_bytes(op.result.type)
    if index is None or index.name != "arith.constant":
        return parts
    begin = index.attributes["value"] * size
    return frozenset(
        Part(part.op, part.start + begin, part.start + begin + size) if part.end - part.start == whole else part
        for part in parts
    )
