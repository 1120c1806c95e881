"""How many registers of a thread matrix products take at once: for their sums, and for rows that they read from registers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernelpack.backends.gpu.facts.products import is_product
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import operand
from kernelpack.ir.types import TensorType, bit_width, shape_of

LOADS = ("tt.load", "tt.descriptor_load")


def registers_together(dots: Sequence[Operation], threads: int) -> int:
    """Returns how many 32-bit registers of a thread the dots of a block take at once, at most: for their sums, and for computed rows.

    A dot's registers are taken until what is computed from its result is read for the last time. A dot that reads it takes them over:
    one that adds to it, as each trip of an unrolled loop does, and one that has it for rows, which are counted there. Sums that come from
    before the block are there from its start.
    """
    sums = [(_first_use(dot), _last_use(dot), _registers(dot.result)) for dot in dots]
    taken = []
    for dot in dots:
        rows = operand(dot, "a")
        there = sum(count for first, last, count in sums if first <= dot.order <= last)
        taken.append(there + (_registers(rows) if is_computed(rows) else 0))
    return max(taken) // threads


def _registers(tile: Value) -> int:
    """Returns how many 32-bit registers a tile takes, of all threads together."""
    return math.prod(shape_of(tile.type)) * bit_width(tile.type) // 32


def _first_use(dot: Operation) -> int:
    """Returns since where in a dot's block its sums are there, as `order`: since the block's start for what it adds to from before."""
    seen: set[Value] = set()
    pending = [operand(dot, "c")]
    while pending:
        value = pending.pop()
        op = value.defining_op
        if op is None or (op.parent is not dot.parent and op.name != "arith.constant"):
            return 0
        if not is_product(op):
            alike = {source for source in op.operands if shape_of(source.type) == shape_of(value.type)}
            pending += alike - seen
            seen |= alike
    return dot.order


def _last_use(dot: Operation) -> int:
    """Returns the `order` up to which a dot's registers are taken in its block."""
    assert dot.parent is not None
    last = dot.order
    seen: set[Value] = set()
    pending: list[Value] = [dot.result]
    while pending:
        value = pending.pop()
        for user in value.users():
            here = user.within(dot.parent)
            last = max(last, here.order - is_product(user))
            if not is_product(user) and user.name != "tt.reduce":
                pending += [result for result in here.results if result not in seen]
                seen |= set(here.results)
    return last


def is_computed(value: Value) -> bool:
    """Whether a tile comes from a product or a reduction rather than straight from memory."""
    seen: set[Value] = set()
    pending = [value]
    while pending:
        op = pending.pop().defining_op
        if op is None or op.name in LOADS:
            continue
        if is_product(op) or op.name == "tt.reduce":
            return True
        for source in op.operands:
            if source not in seen and isinstance(source.type, TensorType):
                seen.add(source)
                pending.append(source)
    return False
