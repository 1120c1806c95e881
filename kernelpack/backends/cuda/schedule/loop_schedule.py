"""What is decided of a loop whose iterations overlap: which copies run ahead into which buffers, and where products are waited for.

Decisions are made on the loop as it is (pointer_loops, descriptor_loops, overlap_products). rewrite_loops then makes the new loop of
them, and nothing reads them back out of it.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from kernelpack.ir.core import Operation, Value
from kernelpack.ir.types import MemDescType


class Sync(enum.Enum):
    """How threads learn that copies have arrived, and that a slot may be filled again."""

    GROUPS = "cp.async groups, counted by each thread, then a barrier"
    TURNS = "cp.async groups; warpgroups announce theirs, and go on when all have"
    FULL = "TMA, an mbarrier for each slot"


@dataclass(frozen=True)
class Ring:
    """The buffers of one load: `slots` of the schedule, each of type `tile`."""

    load: Operation
    tile: MemDescType


@dataclass(frozen=True)
class Wait:
    """A wait for a product, in front of the operation of the body that first reads it.

    `value` is the product's result, or the loop's argument in which the next iteration gets it. `pendings` products that were issued
    after it may stay in flight.
    """

    product: Operation
    value: Value
    before: Operation
    pendings: int


@dataclass
class LoopSchedule:
    """One loop. Copies are issued `ahead` iterations before the one that reads them; their tiles are read for `lag` iterations more."""

    loop: Operation
    rings: Sequence[Ring]
    ahead: int
    lag: int
    sync: Sync
    start: Operation
    """The operation in front of which the first copies start."""
    copies_after: Operation | None
    """The operation of the body after which copies are issued; None: at its start. The last one: at its end."""
    summed: Sequence[Operation] = ()
    """Products that the loop only sums up: each ends before the next iteration's copies."""
    awaited: Sequence[Operation] = ()
    """Products that run on until `waits`, in order."""
    outlasting: Sequence[Operation] = ()
    """Those of them that end in the next iteration."""
    waits: Sequence[Wait] = field(default_factory=list)

    @property
    def slots(self) -> int:
        """How many buffers a ring has: with cp.async the iteration's own is one more, TMA fills that again."""
        return self.ahead + self.lag + (self.sync is not Sync.FULL)

    @property
    def loads(self) -> list[Operation]:
        return [ring.load for ring in self.rings]

    @property
    def end_later(self) -> Sequence[Operation]:
        """Products that are in flight when an iteration ends."""
        return self.summed or self.outlasting

    def __str__(self) -> str:
        ahead = f"copies {self.ahead} iteration{'s' * (self.ahead > 1)} ahead into rings of {self.slots} slots"
        lines = [f"loop at {place_of(self.loop)}: {ahead}; {self.sync.value}"]
        lines += [
            f"  copy {place_of(ring.load)}: {'x'.join(map(str, ring.tile.shape))}x{ring.tile.element}" for ring in self.rings
        ]
        if self.copies_after is None:
            lines.append("  copies are issued at the start")
        elif self.copies_after is self.loop.body.terminator:
            lines.append("  copies are issued at the end")
        else:
            lines.append(f"  copies are issued after {self.copies_after.name} at {place_of(self.copies_after)}")
        lines += [f"  product {place_of(op)}: ends in the next iteration" for op in self.end_later]
        lines += [
            f"  wait for product {place_of(wait.product)} before {wait.before.name} at {place_of(wait.before)}"
            f", {wait.pendings} issued after it may be in flight"
            for wait in self.waits
        ]
        return "\n".join(lines)


def place_of(op: Operation) -> str:
    """Returns line and column of an operation in its file."""
    source = op.location.source
    return "?" if source is None else f"{source.line}:{source.column}"
