"""What each operation of ttgir does to shared memory, and which pairs of operations are ordered without a barrier."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelpack.analysis.alias import Part, buffer_bytes, buffer_parts
from kernelpack.analysis.allocation import Allocation
from kernelpack.analysis.membar import BARRIER, NONE, Accesses, Interval
from kernelpack.backends.gpu.machine import SharedUse, SharedUses
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import Effect, attribute, definition, effects_of, operand

_COPY = "ttg.async_copy_global_to_local"
_USES: SharedUses = {
    "gpu.barrier": SharedUse(meets=True),
    "ttg.warp_specialize": SharedUse(meets=True),  # roles start after a barrier
    _COPY: SharedUse(late_writes=("dst",)),
    "ttg.async_wait": SharedUse(finishes=_COPY),
}
_BY_EFFECTS = SharedUse()


def can_wait(load: Operation, reader: Operation) -> bool:
    """Whether what an operation loads from shared memory is still there at another one of its block: nothing in between may change it."""
    if load.parent is None or reader.parent is not load.parent:
        return False
    operations = load.parent.operations
    between = operations[operations.index(load) + 1 : operations.index(reader)]
    return not any({Effect.SYNCHRONISE, Effect.WRITE_SHARED} & effects_of(other) for other in between)


class SharedAccesses:
    """Callable operation -> what it does to shared memory, in a function whose buffers have been placed."""

    def __init__(
        self, function: Operation, allocation: Allocation, called: Callable[[Operation], Accesses], uses: SharedUses
    ) -> None:
        """`called` gives what a call does, `uses` are the machine's."""
        self.allocation = allocation
        self.called = called
        self.uses = {**_USES, **uses}
        self.parts = buffer_parts(function)
        self.started = {use.finishes: self._touched_by(function, use.finishes) for use in self.uses.values() if use.finishes}

    def needs_barrier(self, first: Operation, second: Operation) -> bool:
        """Whether two operations that touch the same bytes, one of them writing, need a barrier in between.

        What an operation waits for began after all writes. Free copies follow a barrier after all reads of theirs.
        """
        use = self.uses.get(second.name, _BY_EFFECTS)
        if use.finishes or (second.name == _COPY and attribute(second, "free")):
            return False
        return not use.order or use.order != self.uses.get(first.name, _BY_EFFECTS).order

    def __call__(self, op: Operation) -> Accesses:
        use = self.uses.get(op.name, _BY_EFFECTS)
        if use.meets:
            return BARRIER
        if op.name == "tt.call":
            return self.called(op)
        if use.finishes:
            return self._finish(op, use.finishes)
        if use.reads or use.writes or use.late_writes:
            return Accesses.of(op, self._of(op, use.reads), self._of(op, use.writes), self._of(op, use.late_writes))
        if op.name == "ttg.local_alloc":
            return Accesses.of(op, writes=[self.allocation.interval(op)] if op.operands else ())
        if op in self.allocation.offsets:
            return Accesses.exchange(op, self.allocation.interval(op))
        effects = definition(op.name).effects
        touched = self._of_values(op.operands) if {Effect.READ_SHARED, Effect.WRITE_SHARED} & effects else ()
        if not touched:
            return NONE
        reads, writes = Effect.READ_SHARED in effects, Effect.WRITE_SHARED in effects
        return Accesses.of(op, reads=touched if reads else (), writes=touched if writes else ())

    def _finish(self, op: Operation, started: str) -> Accesses:
        if not self.uses.get(started, _BY_EFFECTS).late_writes:
            return Accesses.of(op, reads=self.started[started])
        return NONE if op.attributes.get("early") else Accesses.of(op, arrivals=self.started[started])

    def _touched_by(self, function: Operation, name: str) -> tuple[Interval, ...]:
        return self._of_values([value for op in function.walk() if op.name == name for value in op.operands])

    def _of(self, op: Operation, names: Sequence[str]) -> tuple[Interval, ...]:
        """Returns the bytes that some of an operation's operands lie in."""
        return self._of_values([operand(op, name) for name in names])

    def _of_values(self, values: Sequence[Value]) -> tuple[Interval, ...]:
        return tuple(sorted({self._interval(part) for value in values for part in self.parts.get(value, frozenset())}))

    def _interval(self, part: Part) -> Interval:
        start, end = self.allocation.interval(part.op)
        if end - start != buffer_bytes(part.op.result.type):  # each copy of a role has one
            return start, end
        return start + part.start, start + part.end
