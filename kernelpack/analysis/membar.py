"""Where barriers are needed: between accesses to the same shared memory of which one writes, on every path through the code.

Goes through a module callees first. What a function does before a barrier of its own meets what its caller has not synchronised;
what it leaves unsynchronised, its caller knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kernelpack.analysis.allocation import ROLE
from kernelpack.ir.core import Block, Builder, Operation

Interval = tuple[int, int]
"""Bytes [start, end)."""


class Access(NamedTuple):
    """Bytes [start, end) that an operation reads or writes."""

    start: int
    end: int
    op: Operation


NeedsBarrier = Callable[[Operation, Operation], bool]
"""Whether two operations that touch the same bytes, the first of them before the second, are not ordered by other means."""


@dataclass(frozen=True)
class Pending:
    """Accesses that some thread may still be at, as far as the others know.

    reads, writes   by threads
    async_writes    unordered, later than their operation; whoever reads them waits for them first, so reading after one is no
                    hazard by itself
    """

    reads: frozenset[Access] = frozenset()
    writes: frozenset[Access] = frozenset()
    async_writes: frozenset[Access] = frozenset()

    def __or__(self, other: Pending) -> Pending:
        return Pending(self.reads | other.reads, self.writes | other.writes, self.async_writes | other.async_writes)

    def moved(self, offset: int) -> Pending:
        """Returns the accesses so many bytes further on."""

        def move(accesses: Iterable[Access]) -> frozenset[Access]:
            return frozenset(Access(start + offset, end + offset, op) for start, end, op in accesses)

        return Pending(move(self.reads), move(self.writes), move(self.async_writes))

    def conflicts(self, new: Pending, needs_barrier: NeedsBarrier) -> bool:
        """Whether accesses after these race with them."""
        return any(
            old.start < access.end and access.start < old.end and needs_barrier(old.op, access.op)
            for accesses, others in (
                (new.reads, self.writes),
                (new.writes, self.reads | self.writes | self.async_writes),
                (new.async_writes, self.reads | self.writes),
            )
            for access in accesses
            for old in others
        )


NOTHING = Pending()


@dataclass(frozen=True)
class Accesses:
    """What an operation, or a function, does to shared memory.

    before   what it does before any barrier of its own
    fenced   whether every path through it passes a barrier
    after   what of it others may still meet after it
    """

    before: Pending = NOTHING
    fenced: bool = False
    after: Pending = NOTHING

    @staticmethod
    def of(
        op: Operation,
        reads: Iterable[Interval] = (),
        writes: Iterable[Interval] = (),
        async_writes: Iterable[Interval] = (),
        arrivals: Iterable[Interval] = (),
    ) -> Accesses:
        """Returns the accesses of an operation without a barrier. `arrivals` are asynchronous writes that are complete, for the
        calling thread, after it: others need a barrier."""

        def by_op(intervals: Iterable[Interval]) -> frozenset[Access]:
            return frozenset(Access(start, end, op) for start, end in intervals)

        before = Pending(by_op(reads), by_op(writes), by_op(async_writes))
        return Accesses(before, False, before | Pending(writes=by_op(arrivals)))

    @staticmethod
    def exchange(op: Operation, scratch: Interval) -> Accesses:
        """Returns the accesses of an operation whose threads write, wait for each other, and read."""
        access = frozenset([Access(*scratch, op)])
        return Accesses(Pending(writes=access), True, Pending(reads=access))

    def moved(self, offset: int) -> Accesses:
        """Returns the accesses so many bytes further on."""
        return Accesses(self.before.moved(offset), self.fenced, self.after.moved(offset))


BARRIER = Accesses(fenced=True)
NONE = Accesses()


def insert_barriers(
    function: Operation,
    accesses_of: Callable[[Operation], Accesses],
    barrier: str,
    needs_barrier: NeedsBarrier = lambda first, second: True,
) -> Accesses:
    """Inserts operations called `barrier` where two accesses of different threads would race, and returns what the function as
    a whole does. Loops are followed round; `accesses_of` a call is what the called function does."""
    inserter = _Inserter(accesses_of, barrier, needs_barrier)
    end = inserter.block(function.body, _State())
    return Accesses(end.exposed, end.fenced, end.pending)


@dataclass(frozen=True)
class _State:
    """Where control is: what is pending, what was done before any barrier, and whether each path here passed one."""

    pending: Pending = NOTHING
    exposed: Pending = NOTHING
    fenced: bool = False

    def __or__(self, other: _State) -> _State:
        return _State(self.pending | other.pending, self.exposed | other.exposed, self.fenced and other.fenced)

    def after_barrier(self) -> _State:
        return _State(NOTHING, self.exposed, True)

    def after(self, accesses: Accesses) -> _State:
        exposed = self.exposed if self.fenced else self.exposed | accesses.before
        kept = NOTHING if accesses.fenced else self.pending
        return _State(kept | accesses.after, exposed, self.fenced or accesses.fenced)


class _Inserter:
    def __init__(self, accesses_of: Callable[[Operation], Accesses], barrier: str, needs_barrier: NeedsBarrier) -> None:
        self.accesses_of = accesses_of
        self.barrier = barrier
        self.needs_barrier = needs_barrier

    def block(self, block: Block, state: _State) -> _State:
        """Goes through a block with the state before it; returns the state after it."""
        for op in list(block.operations):
            state = self.operation(op, state)
        return state

    def operation(self, op: Operation, state: _State) -> _State:
        if op.name == "scf.if":
            yes, no = (self.block(region.block, state) if region.blocks else state for region in op.regions)
            return yes | no
        if op.name == ROLE:  # roles start after a barrier of all threads; between them, barriers are the kernel's own
            self.block(op.body, _State())
            return state
        is_loop = op.name in ("scf.for", "scf.while")
        accesses = self.loop(op) if is_loop else self.accesses_of(op)
        if state.pending.conflicts(accesses.before, self.needs_barrier):
            Builder.before(op).create(self.barrier)
            state = state.after_barrier()
        state = state.after(accesses)
        for region in () if is_loop else op.regions:
            for block in region.blocks:
                state = self.block(block, state)
        return state

    def loop(self, op: Operation) -> Accesses:
        """Returns what a loop as a whole does, with barriers between its iterations: what one leaves pending meets the next.

        Barriers only take away, so this ends. What is pending before the loop is waited for there, not in every iteration. A barrier
        stays where one that a later round needs elsewhere does its work, too.
        """
        around = NOTHING
        while True:
            end = after = self.block(op.regions[0].block, _State(around))
            if op.name == "scf.while":
                after = self.block(op.regions[1].block, end)
            if after.pending | around == around:  # the last round has met all barriers
                last = end if op.name == "scf.while" else _State() | after
                return Accesses(after.exposed, last.fenced, last.pending)
            around |= after.pending
