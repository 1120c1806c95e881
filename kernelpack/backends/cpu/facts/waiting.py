"""Facts about memory that other programs write meanwhile: whether programs wait for what other programs write, and so must all run at once."""

from __future__ import annotations

from kernelpack.backends.cpu.facts.affine import constant_of
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute, operand

_UNCHANGED_BY_ZERO = ("add", "fadd", "or", "xor")


def waits_for_programs(module: Operation) -> bool:
    """Returns whether a `while` of a kernel reads again and again, as if another program were to change it, what it leaves as it is.

    A lock is not such a loop: it changes what it reads, and the program that holds it ends without the others.
    """
    loops = (op for op in module.walk() if op.name == "scf.while")
    return any(_looks(op) for loop in loops for op in loop.walk())


def sees_changes(load: Operation) -> bool:
    """Returns whether a tt.load must read memory each time that it is reached: other programs may have written there."""
    return bool(attribute(load, "is_volatile")) or attribute(load, "cache") == "cv"


def _looks(op: Operation) -> bool:
    match op.name:
        case "tt.load":
            return sees_changes(op)
        case "tt.atomic_cas":
            expected, wanted = operand(op, "cmp"), operand(op, "val")
            return expected is wanted or (constant_of(expected) is not None and constant_of(expected) == constant_of(wanted))
        case "tt.atomic_rmw":
            return attribute(op, "atomic_rmw_op") in _UNCHANGED_BY_ZERO and constant_of(operand(op, "val")) == 0
    return False
