"""What each operation of ttgir does to shared memory, and which pairs of operations are ordered without a barrier."""

from __future__ import annotations

from collections.abc import Callable

from kernelpack.analysis.alias import Part, buffer_bytes, buffer_parts
from kernelpack.analysis.allocation import Allocation
from kernelpack.analysis.membar import BARRIER, NONE, Accesses, Interval
from kernelpack.backends.gpu.facts.scratch import MAKE_MAP
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import Effect, attribute, definition, operand

_ASYNC_COPY = "ttg.async_copy_global_to_local"
_TMA_LOAD, _TMA_STORE = "ttng.async_tma_copy_global_to_local", "ttng.async_tma_copy_local_to_global"
_BARRIERS = frozenset({"gpu.barrier", "ttg.warp_specialize", "ttng.wait_turn"})
"""Operations that all threads wait in: roles start behind a barrier."""
_MBARRIER_LIFE = frozenset({"ttng.init_barrier", "ttng.inval_barrier"})
_MBARRIER_USES = frozenset({"ttng.barrier_expect", "ttng.arrive_barrier", "ttng.wait_barrier"})
_LATE_READERS = {
    "ttng.warp_group_dot_wait": "ttng.warp_group_dot",  # products read their tiles until they are waited for
    "ttng.async_tma_store_wait": _TMA_STORE,  # likewise, for the thread that copies
}


def needs_barrier(first: Operation, second: Operation) -> bool:
    """Whether two operations that touch the same bytes, one of them writing, need a barrier in between.

    One thread begins and ends the lives of mbarriers, and one warp puts tensor maps together, in their own order. Free copies follow
    a barrier behind all reads of theirs.
    """
    if second.name == _ASYNC_COPY and attribute(second, "free"):
        return False
    if second.name in _LATE_READERS:  # what it waits for began behind all writes
        return False
    return not {first.name, second.name} <= _MBARRIER_LIFE and not first.name == second.name == MAKE_MAP


class SharedAccesses:
    """Callable operation -> what it does to shared memory, in a function whose buffers have been placed."""

    def __init__(self, function: Operation, allocation: Allocation, called: Callable[[Operation], Accesses]) -> None:
        """`called` gives what a call does."""
        self.allocation = allocation
        self.called = called
        self.parts = buffer_parts(function)
        self.copied = self._touched_by(function, _ASYNC_COPY)
        self.read_late = {wait: self._touched_by(function, reader) for wait, reader in _LATE_READERS.items()}

    def __call__(self, op: Operation) -> Accesses:
        if op.name in _BARRIERS:
            return BARRIER
        if op.name == "tt.call":
            return self.called(op)
        if op.name == "ttg.async_wait":
            return NONE if attribute(op, "early") else Accesses.of(op, arrivals=self.copied)
        if op.name in self.read_late:
            return Accesses.of(op, reads=self.read_late[op.name])
        if op.name == _ASYNC_COPY:
            return Accesses.of(op, async_writes=self._of(op))
        if op.name == _TMA_LOAD:  # waits are for the mbarrier that it arrives at
            barrier, tile = (self._of_values(operand(op, name)) for name in ("barrier", "dst"))
            return Accesses.of(op, reads=barrier, async_writes=tile)
        if op.name in _MBARRIER_LIFE:
            return Accesses.of(op, writes=self._of(op))
        if op.name in _MBARRIER_USES:  # atomic: they only meet the ends of its life
            return Accesses.of(op, reads=self._of(op))
        if op.name == "ttg.local_alloc":
            return Accesses.of(op, writes=[self.allocation.interval(op)] if op.operands else ())
        if op in self.allocation.offsets:
            return Accesses.exchange(op, self.allocation.interval(op))
        effects = definition(op.name).effects
        touched = self._of(op) if {Effect.READ_SHARED, Effect.WRITE_SHARED} & effects else ()
        if not touched:
            return NONE
        reads, writes = Effect.READ_SHARED in effects, Effect.WRITE_SHARED in effects
        return Accesses.of(op, reads=touched if reads else (), writes=touched if writes else ())

    def _touched_by(self, function: Operation, name: str) -> tuple[Interval, ...]:
        found = {interval for op in function.walk() if op.name == name for interval in self._of(op)}
        return tuple(sorted(found))

    def _of(self, op: Operation) -> tuple[Interval, ...]:
        """Returns the bytes that the buffers among an operation's operands lie in."""
        return self._of_values(*op.operands)

    def _of_values(self, *values: Value) -> tuple[Interval, ...]:
        return tuple(sorted({self._interval(part) for value in values for part in self.parts.get(value, frozenset())}))

    def _interval(self, part: Part) -> Interval:
        start, end = self.allocation.interval(part.op)
        if end - start != buffer_bytes(part.op.result.type):  # each copy of a role has one
            return start, end
        return start + part.start, start + part.end
