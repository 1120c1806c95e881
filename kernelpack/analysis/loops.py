"""Facts about the values of a loop's body."""

from __future__ import annotations

from collections.abc import Iterable

from kernelpack.ir.core import Block, BlockArgument, Operation, Value


def is_outside(value: Value, loop: Operation) -> bool:
    """Whether a value is neither computed in a loop nor an argument of it, or of a loop in it."""
    op = value.defining_op
    if op is None and isinstance(value, BlockArgument) and value.owner.parent is not None:
        op = value.owner.parent.parent
        if op is loop:
            return False
    return op is None or loop not in op.ancestors()


def is_invariant(value: Value, loop: Operation) -> bool:
    """Whether a value is the same in every iteration of a loop."""
    if is_outside(value, loop):
        return True
    op = value.defining_op
    return (
        op is not None
        and op.name in ("tt.splat", "tt.broadcast", "arith.constant")
        and all(is_invariant(v, loop) for v in op.operands)
    )


def needed_by(body: Block, values: Iterable[Value]) -> set[Operation]:
    """Returns the operations of a block that values are computed from in the same iteration."""
    needed: set[Operation] = set()
    pending = list(values)
    while pending:
        op = pending.pop().defining_op
        while op is not None and op.parent is not body and op.parent_op is not None:
            op = op.parent_op
        if op is not None and op.parent is body and op not in needed:
            needed.add(op)
            pending += [operand for inner in op.walk() for operand in inner.operands]
    return needed
