"""Where barriers are needed: between accesses to the same shared memory of which one writes, on every path through the code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kernelpack.analysis.allocation import ROLE
from kernelpack.ir.core import Block, Builder, Operation

Interval = tuple[int, int]
"""Bytes [start, end)."""


@dataclass(frozen=True)
class Accesses:
    """What an operation does to shared memory.

    reads, writes   at once
    async_writes    later, unordered; whoever reads them waits for them first, so reading behind one is no hazard by itself
    arrivals        asynchronous writes that are complete, for the calling thread, behind the operation: others need a barrier
    then_reads      what it reads behind a barrier of its own, which orders everything before it
    """

    reads: tuple[Interval, ...] = ()
    writes: tuple[Interval, ...] = ()
    async_writes: tuple[Interval, ...] = ()
    arrivals: tuple[Interval, ...] = ()
    then_reads: tuple[Interval, ...] | None = None
    is_barrier: bool = False


@dataclass
class _Pending:
    """Accesses that some thread may still be at, as far as the others know."""

    reads: set[Interval] = field(default_factory=set)
    writes: set[Interval] = field(default_factory=set)
    async_writes: set[Interval] = field(default_factory=set)

    def copy(self) -> _Pending:
        return _Pending(set(self.reads), set(self.writes), set(self.async_writes))

    def join(self, other: _Pending) -> _Pending:
        return _Pending(self.reads | other.reads, self.writes | other.writes, self.async_writes | other.async_writes)

    def clear(self) -> None:
        self.reads.clear()
        self.writes.clear()
        self.async_writes.clear()

    def conflicts(self, accesses: Accesses) -> bool:
        return (
            _overlap(accesses.reads, self.writes)
            or _overlap(accesses.writes, self.reads | self.writes | self.async_writes)
            or _overlap(accesses.async_writes, self.reads | self.writes)
        )

    def add(self, accesses: Accesses) -> None:
        self.reads.update(accesses.reads)
        self.writes.update(accesses.writes)
        self.writes.update(accesses.arrivals)
        self.async_writes.update(accesses.async_writes)


def _overlap(new: Iterable[Interval], old: Iterable[Interval]) -> bool:
    return any(a[0] < b[1] and b[0] < a[1] for a in new for b in old)


def insert_barriers(function: Operation, accesses_of: Callable[[Operation], Accesses], barrier: str) -> None:
    """Inserts operations called `barrier` where two accesses of different threads would race. Loops are followed round."""
    _Inserter(accesses_of, barrier).block(function.body, _Pending())


class _Inserter:
    def __init__(self, accesses_of: Callable[[Operation], Accesses], barrier: str) -> None:
        self.accesses_of = accesses_of
        self.barrier = barrier

    def block(self, block: Block, pending: _Pending) -> _Pending:
        """Goes through a block with what is pending before it; returns what is pending behind it."""
        pending = pending.copy()
        for op in list(block.operations):
            pending = self.operation(op, pending)
        return pending

    def operation(self, op: Operation, pending: _Pending) -> _Pending:
        if op.name in ("scf.for", "scf.while"):
            return self.loop(op, pending)
        if op.name == ROLE:  # roles start behind a barrier of all threads; between them, barriers are the kernel's own
            self.block(op.body, _Pending())
            return pending
        if op.regions and op.name not in ("scf.if", "tt.reduce", "tt.scan"):
            return self.block(op.body, pending)
        if op.name == "scf.if":
            behind = [self.block(region.block, pending) if region.blocks else pending.copy() for region in op.regions]
            return behind[0].join(behind[1])
        accesses = self.accesses_of(op)
        if accesses.is_barrier:
            pending.clear()
            return pending
        if pending.conflicts(accesses):
            Builder.before(op).create(self.barrier)
            pending.clear()
        if accesses.then_reads is not None:
            pending.clear()
            pending.reads.update(accesses.then_reads)
        else:
            pending.add(accesses)
        return pending

    def loop(self, op: Operation, pending: _Pending) -> _Pending:
        """What one iteration leaves pending meets the next; barriers only take away, so this ends."""
        around = pending
        while True:
            behind = around
            for region in op.regions:
                behind = self.block(region.block, behind)
            joined = pending.join(behind)
            if joined == around:
                return joined
            around = joined
