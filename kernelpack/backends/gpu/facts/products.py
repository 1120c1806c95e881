"""Matrix products of a kernel, and the loads that feed them."""

from __future__ import annotations

from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import Trait, definition


def is_product(op: Operation) -> bool:
    """Whether an operation multiplies matrices."""
    return Trait.PRODUCT in definition(op.name).traits


def loads_for_dots(loop: Operation) -> set[Operation]:
    """Returns the loads of a loop's body that reach a dot within the iteration."""
    return {op for op in loop.body.operations if op.name == "tt.load" and _feeds_dot(op, loop)}


def _feeds_dot(load: Operation, loop: Operation) -> bool:
    seen: set[Operation] = set()
    pending = [load]
    while pending:
        op = pending.pop()
        for result in op.results:
            for user in result.users():
                if is_product(user):
                    return True
                if user not in seen and user.parent is loop.body and user.name != "scf.yield":
                    seen.add(user)
                    pending.append(user)
    return False
