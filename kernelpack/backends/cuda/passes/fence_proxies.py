"""Makes what threads wrote to shared memory visible to wgmma, which reads through another path: fences before the barriers.

    %a = ttg.local_alloc x                   %a = ttg.local_alloc x
                                    =>       ttng.fence_async_shared
    ttng.warp_group_dot %a, ...              ttng.warp_group_dot %a, ...

Whoever wrote fences, then all meet at a barrier (place_shared inserts it), then anyone's wgmma reads (PTX ISA, "Async proxy").
"""

from __future__ import annotations

from kernelpack.analysis.alias import buffer_aliases
from kernelpack.ir.core import Builder, Operation

FENCE = "ttng.fence_async_shared"
_READERS = ("ttng.warp_group_dot", "ttng.async_tma_copy_local_to_global")
_COPY = "ttg.async_copy_global_to_local"


def fence_proxies(function: Operation) -> None:
    """Rewrites a ttgir function in place; fences that are there already stay the only ones."""
    aliases = buffer_aliases(function)

    def buffers(ops: list[Operation]) -> frozenset[Operation]:
        return frozenset(source for op in ops for value in (*op.operands, *op.results) for source in aliases.get(value, ()))

    everything = [op for op in function.walk() if op is not function]
    read = buffers([op for op in everything if op.name in _READERS])
    copied = buffers([op for op in everything if op.name == _COPY]) & read
    for op in everything:
        writes = (op.name == "ttg.local_alloc" and op.operands) or op.name == "ttg.local_store"
        if (writes and buffers([op]) & read) or (op.name == "ttg.async_wait" and copied):
            _fence_after(op)


def _fence_after(op: Operation) -> None:
    assert op.parent is not None
    operations = op.parent.operations
    following = operations[operations.index(op) + 1]
    if following.name != FENCE:
        Builder.after(op).create(FENCE)
