"""Writes out loops of a few trips, whose number is known, trip by trip: what the first trip knows is folded, loads of all are on their way.

A loop that multiplies matrices stays: its loads run ahead, and its registers are needed as they are. So does one whose author
places buffers.
"""

from __future__ import annotations

import math

from kernelpack.backends.gpu.facts.products import is_product
from kernelpack.ir.core import Builder, Operation, Value
from kernelpack.ir.types import MemDescType, TensorType
from kernelpack.ir.views import LOOPS, For
from kernelpack.passes.canonicalize import canonicalize
from kernelpack.passes.cse import cse

MOST_TRIPS = 4
MOST_OPERATIONS = 512
"""Of a thread, on single elements, in all trips."""


def unroll_short_loops(module: Operation, threads: int) -> None:
    """Rewrites a ttir module in place, for blocks of a number of threads."""
    loops = [op for op in module.walk() if op.name == "scf.for"]
    unrolled = [loop for loop in reversed(loops) if _unroll(loop, threads)]
    if unrolled:
        canonicalize(module)
        cse(module)


def _unroll(loop: Operation, threads: int) -> bool:
    bounds = [known for bound in For.of(loop).bounds if (known := _constant(bound)) is not None]
    if len(bounds) < 3:
        return False
    trips = range(*bounds)
    body = [op for op in loop.walk() if op is not loop]
    work = sum(max(1, _elements(op) // threads) for op in body)
    if not 0 < len(trips) <= MOST_TRIPS or len(trips) * work > MOST_OPERATIONS or any(map(_stays, body)):
        return False
    build = Builder.before(loop)
    carried = list(For.of(loop).initial)
    for number in trips:
        index = build.constant(number, loop.body.arguments[0].type)
        mapping: dict[Value, Value] = dict(zip(loop.body.arguments, [index, *carried], strict=True))
        for op in loop.body.operations[:-1]:
            build.insert(op.clone(mapping))
        carried = [mapping.get(value, value) for value in loop.body.terminator.operands]
    loop.replace_with(*carried)
    return True


def _stays(op: Operation) -> bool:
    return is_product(op) or op.name in LOOPS or any(isinstance(value.type, MemDescType) for value in op.operands)


def _constant(value: Value) -> int | None:
    op = value.defining_op
    return op.attributes["value"] if op is not None and op.name == "arith.constant" else None


def _elements(op: Operation) -> int:
    return max((math.prod(value.type.shape) for value in op.results if isinstance(value.type, TensorType)), default=0)
