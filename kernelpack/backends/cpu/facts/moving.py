"""A fact about loops: along which axis the tile of a load moves from one iteration to the next."""

from __future__ import annotations

from kernelpack.analysis.loops import is_invariant
from kernelpack.backends.cpu.facts.affine import span_of
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import attribute, operand
from kernelpack.ir.types import shape_of
from kernelpack.ir.views import LOOPS


def moves_along(load: Operation, axis: int) -> bool:
    """Whether a loop around a load reads rows that follow each other along an axis: their numbers are as many in a row as the tile has, from
    one on that changes in the loop. False where that cannot be told."""
    loop = next((op for op in load.ancestors() if op.name in LOOPS), None)
    if loop is None:
        return False
    waiting = [(operand(load, "ptr"), axis)]
    seen: set[Value] = set()
    while waiting:
        value, axis = waiting.pop()
        op, shape = value.defining_op, shape_of(value.type)
        if op is None or value in seen or not shape or shape[axis] == 1:
            continue
        seen.add(value)
        if op.name == "tt.expand_dims":
            waiting.append((op.operand, axis - (int(attribute(op, "axis")) < axis)))
            continue
        span = span_of(value) if len(shape) == 1 else None
        if (
            span is not None
            and span.high - span.low == shape[axis] - 1
            and not all(is_invariant(term, loop) for term in span.terms)
        ):
            return True
        if op.name == "tt.broadcast" or all(shape_of(one.type) in ((), shape) for one in op.operands):
            waiting += [(one, axis) for one in op.operands]
    return False
