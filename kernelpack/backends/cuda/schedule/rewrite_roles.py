"""Gives the copies of loops to a warp of their own: it fills rings of buffers while the others multiply what is there.

    for i:                                    role of one warp:               role of the others:
        a = descriptor_load d[.., i]            for i:                          for i:
        c = dot a, ..., c                =>       wait for empty[slot]            wait for full[slot]
                                                  expect full[slot]               c = dot (buffer slot), ..., c
                                                  copy block i to buffer slot     c is done: arrive at empty[slot]

Both roles go through the loops and branches around the loads; the one that loads computes coordinates and bounds by itself, and all
else of the function is the other's. Loads that the same products read share barriers; loads of the same descriptors, such as those
that rotate_products takes out of a loop, share a ring. Where in a ring they are is a number that both roles carry along: that of the
buffer, in every other round plus the number of buffers.

Where a kernel asks for it, by tl.range(warp_specialize=True), and where it measured faster (docs/h100-tuning.md): in loops of two or more
warpgroups that multiply what they computed from another product, as attention does.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernelpack.backends.cuda.machine.block_copies import barriers, block_accessed, block_bytes
from kernelpack.backends.cuda.machine.roles import WARPGROUP
from kernelpack.backends.cuda.schedule.loop_schedule import NONE, Copy, Group, Key, Products, RoleSchedule, Wait
from kernelpack.backends.cuda.schedule.lower_descriptors import lower_descriptors
from kernelpack.backends.cuda.schedule.products_in_flight import (
    await_products,
    issue,
    keep_in_flight,
    waits_before,
)
from kernelpack.ir.core import Block, Builder, Operation, Region, Value
from kernelpack.ir.dialect import operand, operands_called
from kernelpack.ir.types import I1, I32, MemDescType
from kernelpack.ir.views import For


def rewrite_roles(function: Operation, schedule: RoleSchedule, num_warps: int) -> None:
    """Rewrites a ttgir kernel of `num_warps` warps in place; all its accesses through descriptors are lowered then."""
    lower_descriptors(function, schedule.loads)
    old = list(function.body.operations)
    build = Builder(function.body, location=function.location)
    rings = {key: _Ring.make(build, copies, schedule.slots, num_warps // WARPGROUP) for key, copies in schedule.rings.items()}
    start = build.constant(0, I32)
    loading, multiplying = schedule.registers
    roles = Block()
    for kind, warps, registers in ((_Loader, 1, loading), (_Multiplier, num_warps, multiplying)):
        body = Block([I32], ["copy"])
        inside = Builder(body, location=function.location)
        kind(schedule, rings, start).block(function.body, len(old), inside)
        inside.create("ttg.warp_return")
        attributes = {"num_warps": warps, "copies": 1, "registers": registers}
        Builder(roles, location=function.location).create("ttg.role", (), attributes, (), [Region([body])])
    Builder(roles, location=function.location).create("ttg.warp_return")
    build.create("ttg.warp_specialize", (), None, (), [Region([roles])])
    build.insert(old[-1].clone())
    for op in reversed(old):
        op.drop()


@dataclass(frozen=True)
class _Ring:
    """A ring of `depth` buffers for a group of loads, and for each buffer a barrier that says it is full and one that says it is empty.

    `empty` has one barrier more, which belongs to no buffer: readers that have read nothing yet arrive there.
    """

    buffers: tuple[Value, ...]
    full: Value
    empty: Value
    depth: int

    @staticmethod
    def make(build: Builder, copies: Sequence[Copy], depth: int, readers: int) -> _Ring:
        """Allocates a ring and initialises its barriers. `readers` warpgroups arrive at a buffer's `empty` when they have read it."""
        kinds = [MemDescType((depth, *copy.tile.shape), copy.tile.element, copy.tile.encoding, True) for copy in copies]
        ring = _Ring(
            tuple(build.value("ttg.local_alloc", (), None, kind) for kind in kinds),
            barriers(build, depth),
            barriers(build, depth + 1),
            depth,
        )
        for barrier, count, slots_ in ((ring.full, 1, depth), (ring.empty, readers, depth + 1)):
            for slot in range(slots_):
                build.create("ttng.init_barrier", [_view(build, barrier, build.constant(slot, I32))], {"count": count})
        return ring

    def slot(self, build: Builder, place: Value) -> tuple[Value, Value]:
        """Returns the slot of a place, and the parity of the round. Places count to twice the depth, so they tell both."""
        again = self._at_least(build, place, self.depth)
        earlier = build.value("arith.subi", [place, build.constant(self.depth, I32)])
        return build.value("arith.select", [again, earlier, place]), build.value("arith.extui", [again], None, I32)

    def next(self, build: Builder, place: Value) -> Value:
        """Returns the place after one."""
        more = build.value("arith.addi", [place, build.constant(1, I32)])
        return build.value("arith.select", [self._at_least(build, more, 2 * self.depth), build.constant(0, I32), more])

    @staticmethod
    def _at_least(build: Builder, place: Value, number: int) -> Value:
        return build.value("arith.cmpi", [place, build.constant(number, I32)], {"predicate": "sge"}, I1)


def _view(build: Builder, ring: Value, slot: Value) -> Value:
    kind = ring.type
    assert isinstance(kind, MemDescType)
    return build.value("ttg.memdesc_index", [ring, slot], None, MemDescType(kind.shape[1:], kind.element, kind.encoding, True))


class _Role(abc.ABC):
    """Builds the body of one role, going through the function in order."""

    def __init__(self, schedule: RoleSchedule, rings: Mapping[Key, _Ring], start: Value) -> None:
        self.schedule = schedule
        self.rings = rings
        self.mapping: dict[Value, Value] = {}
        self.carried: dict[Key | Group, Value] = dict.fromkeys(rings, start)
        """The places in rings, and what else loops carry along."""

    @abc.abstractmethod
    def keeps(self, value: Value) -> bool:
        """Whether the role carries a value through a loop or out of a branch."""

    @abc.abstractmethod
    def plain(self, build: Builder, op: Operation) -> None:
        """Does one operation that is not around loads."""

    @abc.abstractmethod
    def before(self, build: Builder, op: Operation) -> None:
        """Does what must come before an operation."""

    @abc.abstractmethod
    def end_iteration(self, build: Builder, loop: Operation) -> None:
        """Does what a loop's body ends with."""

    def of(self, values: Iterable[Value]) -> list[Value]:
        return [self.mapping.get(value, value) for value in values]

    def block(self, block: Block, end: int, build: Builder) -> None:
        """Does the first operations of a block, but for its terminator, number `end` - 1."""
        for op in block.operations[: end - 1]:
            self.before(build, op)
            if op not in self.schedule.around:
                self.plain(build, op)
            elif op.name == "scf.for":
                self.loop(build, op)
            else:
                self.branch(build, op)

    def loop(self, build: Builder, op: Operation) -> None:
        kept = [index for index, result in enumerate(op.results) if self.keeps(result)]
        carried = For.of(op).carried
        initial = [*self.of(carried[index].initial for index in kept), *self.carried.values()]
        inside = Block([op.body.arguments[0].type], [op.body.arguments[0].name])
        self.mapping[op.body.arguments[0]] = inside.arguments[0]
        for index in kept:
            argument = op.body.arguments[1 + index]
            self.mapping[argument] = inside.add_argument(argument.type, argument.name)
        self.carried = {key: inside.add_argument(I32, "place") for key in self.carried}
        body = Builder(inside, location=op.location)
        self.block(op.body, len(op.body.operations), body)
        self.end_iteration(body, op)
        following = [*self.of(op.body.terminator.operands[index] for index in kept), *self.carried.values()]
        body.create("scf.yield", following)
        operands = [*self.of(For.of(op).bounds), *initial]
        made = build.create("scf.for", operands, op.attributes, [value.type for value in initial], [Region([inside])])
        self._take(op, kept, made)

    def branch(self, build: Builder, op: Operation) -> None:
        kept = [index for index, result in enumerate(op.results) if self.keeps(result)]
        before, regions = self.carried, []
        for region in (*op.regions, *[Region()] * (2 - len(op.regions))):
            inside, self.carried = Block(), before
            body = Builder(inside, location=op.location)
            values: list[Value] = []
            if region.blocks:
                self.block(region.block, len(region.block.operations), body)
                values = self.of(region.block.terminator.operands[index] for index in kept)
            body.create("scf.yield", [*values, *self.carried.values()])
            regions.append(Region([inside]))
        types = [*(op.results[index].type for index in kept), *[I32] * len(before)]
        made = build.create("scf.if", self.of(op.operands), op.attributes, types, regions)
        self._take(op, kept, made)

    def _take(self, op: Operation, kept: Sequence[int], made: Operation) -> None:
        for index, result in zip(kept, made.results, strict=False):
            result.name = op.results[index].name
            self.mapping[op.results[index]] = result
        self.carried = dict(zip(self.carried, made.results[len(kept) :], strict=True))


class _Loader(_Role):
    """Fills buffers, each as soon as it is empty, where the last load of a group stands."""

    def __init__(self, schedule: RoleSchedule, rings: Mapping[Key, _Ring], start: Value) -> None:
        super().__init__(schedule, rings, start)
        self.group_at = {group.loads[-1]: group for group in schedule.groups}

    def keeps(self, value: Value) -> bool:
        return value in self.schedule.scalars

    def plain(self, build: Builder, op: Operation) -> None:
        if op in self.group_at:
            self._fill(build, self.group_at[op])
        elif op.results and self.schedule.scalars.issuperset(op.results):
            build.insert(op.clone(self.mapping))

    def before(self, build: Builder, op: Operation) -> None:
        """Adds nothing: this role has no products."""

    def end_iteration(self, build: Builder, loop: Operation) -> None:
        """Adds nothing: this role does not wait for the copies that it starts."""

    def _fill(self, build: Builder, group: Group) -> None:
        ring, place = self.rings[group.key], self.carried[group.key]
        slot, round_ = ring.slot(build, place)
        build.create(
            "ttng.wait_barrier",
            [_view(build, ring.empty, slot), build.value("arith.xori", [round_, build.constant(1, I32)])],
        )
        full = _view(build, ring.full, slot)
        size = sum(block_bytes(block_accessed(load)) for load in group.loads)
        build.create("ttng.barrier_expect", [full], {"size": size})
        for load, buffer in zip(group.loads, ring.buffers, strict=True):
            coords = self.of(operands_called(load, "indices"))
            operands = [operand(load, "desc"), *coords, full, _view(build, buffer, slot), build.constant(True, I1)]
            build.create("ttng.async_tma_copy_global_to_local", operands)
        self.carried = {**self.carried, group.key: ring.next(build, place)}


class _Multiplier(_Role):
    """Does everything but the loads: waits for full buffers, and says when it has read them."""

    def __init__(self, schedule: RoleSchedule, rings: Mapping[Key, _Ring], start: Value) -> None:
        super().__init__(schedule, rings, start)
        self.group_at = {group.loads[0]: group for group in schedule.groups}
        self.slots: dict[Group, Value] = {}

    def keeps(self, value: Value) -> bool:
        return True

    def plain(self, build: Builder, op: Operation) -> None:
        if op in self.group_at:
            self._await(build, self.group_at[op])
        elif op not in self.schedule.loads and not (op.name == "ttg.local_alloc" and op.result in self.mapping):
            issue(build, op, self.mapping, self._products(op.parent_op))
        self._release_after(build, op)

    def before(self, build: Builder, op: Operation) -> None:
        """Waits for the products that an operation is the first to read, and gives back the slots that they have read."""
        for wait in waits_before(build, op, self.mapping, self._products(op.parent_op)):
            self._release_after(build, wait)

    def _products(self, loop: Operation | None) -> Products:
        return NONE if loop is None else self.schedule.products.get(loop, NONE)

    def _release_after(self, build: Builder, done: Operation | Wait) -> None:
        for group in self.schedule.groups:
            if group.done is done:
                self._release(build, group, self.slots[group])

    def _await(self, build: Builder, group: Group) -> None:
        ring, place = self.rings[group.key], self.carried[group.key]
        slot, round_ = ring.slot(build, place)
        build.create("ttng.wait_barrier", [_view(build, ring.full, slot), round_])
        for load, buffer in zip(group.loads, ring.buffers, strict=True):
            view = _view(build, buffer, slot)
            self.mapping.update((copy.result, view) for copy in load.result.users())
        self.slots[group] = slot
        self.carried = {**self.carried, group.key: ring.next(build, place)}

    def _release(self, build: Builder, group: Group, slot: Value) -> None:
        build.create("ttng.arrive_barrier", [_view(build, self.rings[group.key].empty, slot)], {"every": WARPGROUP})

    # ---- products that end in the next iteration ----

    def _late(self, loop: Operation) -> list[Group]:
        return [group for group in self.schedule.groups if group.done is None and group.loads[0].parent_op is loop]

    def end_iteration(self, build: Builder, loop: Operation) -> None:
        """Waits for the products of the iteration before, and gives back the slots that they have read."""
        self.before(build, loop.body.terminator)
        keep_in_flight(build, self.mapping, self._products(loop).summed)
        for group in self._late(loop):
            self._release(build, group, self.carried[group])
            self.carried = {**self.carried, group: self.slots[group]}

    def loop(self, build: Builder, op: Operation) -> None:
        """Rebuilds a loop. Products that are in flight when it ends are waited for, in a branch that is taken if there was an iteration.

        The branch is needed because ptxas holds up the products of a loop whose sums may also come from elsewhere. For the same
        reason no iteration asks whether it is the first: the first one gives back the buffer that does not exist.
        """
        deferred, late, before = self._products(op).summed, self._late(op), self.carried
        if not deferred and not late:
            super().loop(build, op)
            return
        initial = self.of(For.of(op).initial)
        any_iteration = build.value("arith.cmpi", self.of([For.of(op).lower, For.of(op).upper]), {"predicate": "slt"}, I1)
        then, otherwise = (Builder(Block(), location=op.location) for _ in range(2))
        self.carried = {**before, **{group: then.constant(self.rings[group.key].depth, I32) for group in late}}
        super().loop(then, op)
        results = await_products(then, self.of(op.results), deferred)
        for group in late:
            self._release(then, group, self.carried.pop(group))
        then.create("scf.yield", [*results, *self.carried.values()])
        otherwise.create("scf.yield", [*initial, *before.values()])
        types = [value.type for value in (*results, *before.values())]
        regions = [Region([branch.block]) for branch in (then, otherwise)]
        self._take(op, range(len(results)), build.create("scf.if", [any_iteration], {}, types, regions))
