"""What is the same in all iterations of a loop."""

from __future__ import annotations

from kernelpack.ir.core import BlockArgument, Operation, Value


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
