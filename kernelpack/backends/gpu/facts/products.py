"""Matrix products of a kernel: their operations, and the loads that feed them."""

from __future__ import annotations

from kernelpack.ir.core import Operation

PRODUCT, WAIT = "ttng.warp_group_dot", "ttng.warp_group_dot_wait"
DOTS = ("tt.dot", "ttg.fma_dot", PRODUCT)


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
                if user.name in DOTS:
                    return True
                if user not in seen and user.parent is loop.body and user.name != "scf.yield":
                    seen.add(user)
                    pending.append(user)
    return False
