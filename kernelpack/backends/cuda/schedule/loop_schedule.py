"""What is decided of a function's loops: which copies run ahead into which buffers, which products run on, and where both are waited for.

Decisions are made on the function as it is (decide). rewrite_loops and rewrite_roles then make the new one of them, and nothing reads
them back out of it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import operand
from kernelpack.ir.types import MemDescType


class Arrival(enum.Enum):
    """How threads learn that copies have arrived, and that a slot may be filled again."""

    GROUPS = "cp.async groups, counted by each thread, then a barrier"
    TURNS = "cp.async groups; warpgroups announce theirs, and go on when all have"
    FULL = "TMA, an mbarrier for each slot"
    FULL_EMPTY = "TMA, full and empty mbarriers"


@dataclass(frozen=True)
class Copy:
    """A load that fills the slots of a ring: buffers of type `tile`."""

    load: Operation
    tile: MemDescType

    def __str__(self) -> str:
        return f"  copy {place_of(self.load)}: {'x'.join(map(str, self.tile.shape))}x{self.tile.element}"


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

    def __str__(self) -> str:
        where = f"before {self.before.name} at {place_of(self.before)}"
        return f"  wait for product {place_of(self.product)} {where}, {self.pendings} issued after it may be in flight"


@dataclass(frozen=True)
class Products:
    """The products of a loop's body that run on after they are issued."""

    summed: Sequence[Operation] = ()
    """Those that the loop only sums up: each ends before the next iteration's copies."""
    awaited: Sequence[Operation] = ()
    """Those that run on until `waits`, in order."""
    outlasting: Sequence[Operation] = ()
    """Those of `awaited` that end in the next iteration."""
    waits: Sequence[Wait] = ()
    late: Sequence[Operation] = ()
    """Those that belong to the iteration before the one that issues them (rotate_products)."""

    @property
    def end_later(self) -> Sequence[Operation]:
        """Those that are in flight when an iteration ends."""
        return self.summed or self.outlasting

    def __bool__(self) -> bool:
        return bool(self.summed or self.awaited)

    def lines(self) -> list[str]:
        lines = [f"  product {place_of(op)}: of the iteration before" for op in self.late]
        lines += [f"  product {place_of(op)}: ends in the next iteration" for op in self.end_later]
        return [*lines, *map(str, self.waits)]


NONE = Products()
"""Each product ends where it is issued."""


@dataclass
class LoopSchedule:
    """One loop. Copies are issued `ahead` iterations before the one that reads them; their tiles are read for `lag` iterations more."""

    loop: Operation
    copies: Sequence[Copy] = ()
    """None in a loop of which only products run on."""
    ahead: int = 0
    lag: int = 0
    arrival: Arrival = Arrival.GROUPS
    start: Operation | None = None
    """The operation in front of which the first copies start; None: the loop."""
    copies_after: Operation | None = None
    """The operation of the body after which copies are issued; None: at its start. The last one: at its end."""
    products: Products = NONE
    held: Sequence[Operation] = ()
    """Loads that run ahead as the copies do, in registers."""
    refills: bool = False
    """Whether cp.async fills the iteration's own slot again, at its end."""

    @property
    def slots(self) -> int:
        """How many buffers a ring has: with cp.async the iteration's own is mostly one more, TMA fills that again."""
        return self.ahead + self.lag + (self.arrival is not Arrival.FULL and not self.refills)

    @property
    def loads(self) -> list[Operation]:
        return [copy.load for copy in self.copies]

    @property
    def meets_first(self) -> bool:
        """Whether an iteration starts with a barrier, since which nobody reads the slot that it fills."""
        return self.lag > 0 or bool(self.products.awaited)

    def wait_at_once(self) -> None:
        """Lets each product end where it is issued."""
        self.products = NONE
        if self.arrival is Arrival.TURNS:  # which pass on at the first wait for a product
            self.arrival = Arrival.GROUPS

    def __str__(self) -> str:
        if not self.copies:
            return "\n".join([f"loop at {place_of(self.loop)}: products run on", *self.products.lines()])
        ahead = f"copies {self.ahead} iteration{'s' * (self.ahead > 1)} ahead into rings of {self.slots} slots"
        lines = [f"loop at {place_of(self.loop)}: {ahead}; {self.arrival.value}", *map(str, self.copies)]
        lines += [f"  load {place_of(load)}: in registers" for load in self.held]
        if self.copies_after is None:
            lines.append("  copies are issued at the start")
        elif self.copies_after is self.loop.body.terminator:
            lines.append("  copies are issued at the end")
        else:
            lines.append(f"  copies are issued after {self.copies_after.name} at {place_of(self.copies_after)}")
        return "\n".join([*lines, *self.products.lines()])


Key = tuple[tuple[Value, object], ...]


@dataclass(frozen=True, eq=False)
class Group:
    """Copies that fill a slot together: loads of a block that the same products read.

    `done` is what nobody reads the slot after, an operation of the block or a wait in it; None where the products end in the next
    iteration of the loop.
    """

    copies: tuple[Copy, ...]
    done: Operation | Wait | None

    @property
    def key(self) -> Key:
        """Groups of the same descriptors and tiles share a ring."""
        return tuple((operand(copy.load, "desc"), copy.tile) for copy in self.copies)

    @property
    def loads(self) -> tuple[Operation, ...]:
        return tuple(copy.load for copy in self.copies)

    def __str__(self) -> str:
        if self.done is None:
            end = "  read until the next iteration's products were issued"
        elif isinstance(self.done, Wait):
            end = f"  read until product {place_of(self.done.product)} is done"
        else:
            end = f"  read until {self.done.name} at {place_of(self.done)}"
        return "\n".join([*map(str, self.copies), end])


@dataclass(frozen=True)
class RoleSchedule:
    """A role of one warp that copies for the others. Each ring has `slots` slots, a slot two mbarriers: it is full, it is empty."""

    groups: tuple[Group, ...]
    around: frozenset[Operation]
    """The loops and branches around the loads, which both roles go through."""
    scalars: frozenset[Value]
    """What the role that copies can compute."""
    products: Mapping[Operation, Products]
    """Of each loop of `around` whose products run on."""
    slots: int = 0
    registers: tuple[int, int] = (0, 0)
    """Of a thread of the role that copies, and of the one that multiplies; 0: as many as a thread can have."""

    def waiting_at_once(self) -> RoleSchedule:
        """Returns it with products that end where they are issued."""
        groups = (replace(group, done=group.done.product) if isinstance(group.done, Wait) else group for group in self.groups)
        return replace(self, groups=tuple(groups), products={})

    @property
    def loads(self) -> frozenset[Operation]:
        return frozenset(load for group in self.groups for load in group.loads)

    @property
    def rings(self) -> dict[Key, tuple[Copy, ...]]:
        return {group.key: group.copies for group in self.groups}

    def __str__(self) -> str:
        lines = [f"a warp of its own copies into {len(self.rings)} rings of {self.slots} slots; {Arrival.FULL_EMPTY.value}"]
        lines += map(str, self.groups)
        for loop, products in self.products.items():
            lines += [f"loop at {place_of(loop)}:", *products.lines()]
        return "\n".join(lines)


@dataclass
class Schedule:
    """What is decided of a function: loops whose iterations overlap, or a warp of its own that copies for them."""

    loops: list[LoopSchedule] = field(default_factory=list)
    roles: RoleSchedule | None = None

    @property
    def runs_on(self) -> bool:
        """Whether some product does."""
        return any(loop.products for loop in self.loops) or bool(self.roles is not None and self.roles.products)

    def wait_at_once(self) -> None:
        """Lets each product end where it is issued, for an assembler that does not follow those that run on."""
        for loop in self.loops:
            loop.wait_at_once()
        if self.roles is not None:
            self.roles = self.roles.waiting_at_once()

    def __str__(self) -> str:
        return "\n".join([*([str(self.roles)] if self.roles is not None else []), *map(str, self.loops)])


def place_of(op: Operation) -> str:
    """Returns line and column of an operation in its file."""
    source = op.location.source
    return "?" if source is None else f"{source.line}:{source.column}"
