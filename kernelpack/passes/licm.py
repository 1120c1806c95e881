"""licm: pure operations that compute the same in every trip of a loop move before it."""

from __future__ import annotations

from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import is_pure, operand
from kernelpack.passes.canonicalize.arithmetic import constant_of

_MAY_TRAP = ("arith.divsi", "arith.divui", "arith.remsi", "arith.remui")


def licm(module: Operation) -> None:
    """Hoists loop-invariant operations in place, out of as many loops as possible.

    Loads stay, and so do integer divisions by what may be zero: the loop may never run.
    """
    for op in reversed(list(module.walk())):  # inner loops first: what leaves them may leave the outer ones too
        if op.name in ("scf.for", "scf.while"):
            _hoist(op)


def _hoist(loop: Operation) -> None:
    assert loop.parent is not None
    varying: set[Value] = set()
    for inner in loop.walk():
        varying.update(argument for region in inner.regions for block in region.blocks for argument in block.arguments)
        if inner is not loop:
            varying.update(inner.results)
    for region in loop.regions:
        for op in region.block.operations[:-1]:
            if _may_run_in_vain(op) and not _uses(op, varying):
                loop.parent.insert(loop.parent.index(loop), op)
                varying.difference_update(op.results)


def _may_run_in_vain(op: Operation) -> bool:
    """Whether an operation does no harm where the program would not have run it."""
    if not is_pure(op):
        return False
    divisors = [constant_of(operand(inner, "rhs")) for inner in op.walk() if inner.name in _MAY_TRAP]
    return all(divisor is not None and divisor not in (0, -1) for divisor in divisors)


def _uses(op: Operation, values: set[Value]) -> bool:
    """Whether an operation, or one inside it, uses one of the values, its own aside."""
    own = {
        value
        for inner in op.walk()
        for value in (*inner.results, *(a for region in inner.regions for block in region.blocks for a in block.arguments))
    }
    return any(value in values and value not in own for inner in op.walk() for value in inner.operands)
