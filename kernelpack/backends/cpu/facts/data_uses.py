"""Which integers that index arithmetic makes a kernel works with; the others are places of accesses alone."""

from __future__ import annotations

from kernelpack.ir.core import Operation, Value
from kernelpack.ir.views import slot_of

_ARITHMETIC = frozenset(
    {
        "arith.addi", "arith.subi", "arith.muli", "arith.extsi", "arith.trunci",
        "tt.splat", "tt.expand_dims", "tt.broadcast", "tt.trans", "tt.reshape",
    }
)  # fmt: skip
_PLACES = frozenset({"tt.addptr", "arith.cmpi"})
"""Where places end: in addresses, and in masks."""
_PASSING = frozenset({"scf.for", "scf.if", "scf.while", "scf.yield", "scf.condition"})
"""What hands values on, or counts by them."""


def used_as_data(function: Operation) -> frozenset[Value]:
    """Returns the values of a function that an operation reads for another end than an address, a comparison or control flow, and those
    that arithmetic makes them of."""
    known: set[Value] = set()
    pending = [
        operand
        for op in function.walk()
        if op.name not in _ARITHMETIC and op.name not in _PLACES and op.name not in _PASSING
        for operand in op.operands
    ]
    while pending:
        value = pending.pop()
        if value in known:
            continue
        known.add(value)
        slot = slot_of(value)
        if slot is not None:
            pending += slot.source_values()
        elif value.defining_op is not None and value.defining_op.name in _ARITHMETIC:
            pending += value.defining_op.operands
    return frozenset(known)
