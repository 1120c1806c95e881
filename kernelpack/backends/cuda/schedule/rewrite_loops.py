"""Makes the loop that a LoopSchedule describes: copies that start iterations before the one that reads them, waits, turns."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence

from kernelpack.backends.cuda.machine.block_copies import barriers, block_accessed, block_bytes, is_copy_to, read_buffer
from kernelpack.backends.cuda.schedule.loop_schedule import Arrival, Copy, LoopSchedule
from kernelpack.backends.cuda.schedule.overlap_products import copied_from
from kernelpack.backends.cuda.schedule.products_in_flight import (
    await_products,
    branch_if_iterates,
    issue,
    keep_in_flight,
    run_on_in_place,
    waits_before,
)
from kernelpack.backends.cuda.schedule.run_ahead import addresses_of, initial_of, slice_of, yielded_of
from kernelpack.backends.gpu.facts.conversion_cost import is_better_read
from kernelpack.backends.gpu.facts.memory_layouts import memory_bits
from kernelpack.ir.core import Block, Builder, Operation, Region, Value
from kernelpack.ir.dialect import operand, operands_called
from kernelpack.ir.types import I1, I32, MemDescType, TensorType, Type, with_element
from kernelpack.ir.views import For
from kernelpack.layout.encoding import layout_of

ARRIVE = "ttg.async_wait"


def rewrite_loops(schedules: Iterable[LoopSchedule]) -> None:
    """Replaces loops in place."""
    for schedule in schedules:
        if schedule.copies:
            (_WithBarriers if schedule.arrival is Arrival.FULL else _WithGroups)(schedule).run()
        else:
            run_on_in_place(schedule.products)


class _Rewriter(abc.ABC):
    """Replaces one loop. The new one carries what the old one did, the values that run ahead, and its place in the rings."""

    def __init__(self, schedule: LoopSchedule) -> None:
        self.schedule = schedule
        self.loop = loop = schedule.loop
        self.ahead = schedule.ahead
        held = [load.result for load in schedule.held]
        slice_ = slice_of(loop, [*held, *(value for copy in schedule.copies for value in self.addresses(copy.load))])
        assert slice_ is not None, "loads are candidates by their addresses"
        self.slice = slice_
        self.lower, self.upper, self.step = For.of(loop).bounds
        self.build = Builder.before(schedule.start or loop)
        self.buffers = [self._buffers(copy) for copy in schedule.copies]

    # ---- what differs between cp.async and TMA ----

    @abc.abstractmethod
    def addresses(self, load: Operation) -> Sequence[Value]:
        """Returns what a copy in a load's place needs of the iteration."""

    @abc.abstractmethod
    def begin(self, build: Builder) -> None:
        """Does what comes before the first copies."""

    @abc.abstractmethod
    def start_copies(self, build: Builder, slot: Value, within: Value, mapping: dict[Value, Value], free: bool) -> None:
        """Starts the copies of one iteration, whose values `mapping` gives, where the scalar `within` holds. `free`: nobody reads
        the buffers of the slot since the last barrier."""

    @abc.abstractmethod
    def first_place(self, build: Builder) -> list[Value]:
        """Returns the first iteration's place in the rings: two numbers, the first of them its slot."""

    @abc.abstractmethod
    def enter(self, build: Builder, place: Sequence[Value]) -> None:
        """Waits for the copies of an iteration."""

    @abc.abstractmethod
    def slot_to_fill(self, build: Builder, place: Sequence[Value]) -> Value:
        """Returns the slot that an iteration's copies go to."""

    @abc.abstractmethod
    def next_place(self, build: Builder, place: Sequence[Value]) -> list[Value]:
        """Returns the place after one, round the ring."""

    @abc.abstractmethod
    def read(self, build: Builder, kind: Type, view: Value) -> Value:
        """Returns a tile of a ring in registers."""

    @abc.abstractmethod
    def end(self, build: Builder) -> None:
        """Does what comes after the loop."""

    place_names: tuple[str, str]

    # ---- the loop ----

    def run(self) -> None:
        schedule, old = self.schedule, self.loop
        self.begin(self.build)
        ahead, held = self._copy_first()
        carried = [*For.of(old).initial, *ahead, *self.first_place(self.build), *held]
        build = Builder.before(old)
        if schedule.products.end_later:
            whole, then = branch_if_iterates(build, [*For.of(old).bounds, *carried], old.location)
            inside = Builder(then, location=old.location)
            loop = self._loop(inside, carried, ahead)
            results = loop.results[: len(whole.results)]
            inside.create("scf.yield", await_products(inside, results, schedule.products.end_later))
        else:
            whole = loop = self._loop(build, carried, ahead)
        self.end(build)
        for result, inner, outer in zip(old.results, loop.results, whole.results, strict=False):
            inner.name = outer.name = result.name
            result.replace_all_uses_with(outer)
        old.drop()

    def _loop(self, build: Builder, carried: list[Value], ahead: Sequence[Value]) -> Operation:
        """Creates the new loop, between the turns of warpgroups if they take some."""
        types = [value.type for value in carried]
        operands, attributes = [self.lower, self.upper, self.step, *carried], self.loop.attributes
        if self.schedule.arrival is not Arrival.TURNS:
            return build.create("scf.for", operands, attributes, types, [Region([self._body(ahead, None)])])
        zero, one = build.constant(0, I32), build.constant(1, I32)
        self._announce(build, zero)
        region = Region([self._body(ahead, one)])
        loop = build.create("scf.for", [*operands, zero], attributes, [*types, I32], [region])
        build.create("ttng.wait_turn", [loop.results[-1]])
        build.create("gpu.barrier")  # another loop's turns begin after the last one of this
        return loop

    def _announce(self, build: Builder, turn: Value) -> None:
        """Waits for this warpgroup's copies, and says so to the others."""
        build.create(ARRIVE, (), {"num": self.ahead - 1, "early": True})
        build.create("ttng.arrive_turn", [turn])

    def _body(self, ahead: Sequence[Value], one: Value | None) -> Block:
        """Returns the new loop's body; `one`, a number from before the loop, turns the turn, where there are turns."""
        old, schedule, products = self.loop.body, self.schedule, self.schedule.products
        block = Block([argument.type for argument in old.arguments], [argument.name for argument in old.arguments])
        mapping: dict[Value, Value] = dict(zip(old.arguments, block.arguments, strict=True))
        early: list[Value] = [
            block.add_argument(value.type, argument.name and f"{argument.name}_ahead")
            for argument, value in zip(self.slice.carried, ahead, strict=True)
        ]
        place = [block.add_argument(I32, name) for name in self.place_names]
        held = [block.add_argument(load.result.type, load.result.name) for _ in range(self.ahead) for load in schedule.held]
        mapping.update(zip((load.result for load in schedule.held), held, strict=False))
        build = Builder(block, location=self.loop.location)
        turns: list[Value] = []
        if one is None:
            self.enter(build, place)
        else:
            turn = block.add_argument(I32, "turn")
            build.create("ttng.wait_turn", [turn])
            turns.append(build.value("arith.xori", [turn, one]))
        following: tuple[list[Value], list[Value]] | None = None
        if schedule.copies_after is None:
            following = self._copy_ahead(build, block.arguments[0], place, early)
        views = {
            copy.load: self._view(build, buffers, place[0]) for copy, buffers in zip(schedule.copies, self.buffers, strict=True)
        }
        first_wait = products.waits[0] if products.waits else None
        for op in old.operations[:-1]:
            for wait in waits_before(build, op, mapping, products):
                if turns and wait is first_wait:
                    self._announce(build, turns[0])
            self._clone(build, op, views, mapping)
            if op is schedule.copies_after:
                following = self._copy_ahead(build, block.arguments[0], place, early)
        keep_in_flight(build, mapping, products.summed)
        if following is None:
            following = self._copy_ahead(build, block.arguments[0], place, early)
        places = self.next_place(build, place)
        list(waits_before(build, old.terminator, mapping, products))
        yielded = [mapping.get(value, value) for value in old.terminator.operands]
        values, loaded = following
        build.create("scf.yield", [*yielded, *values, *places, *held[len(loaded) :], *loaded, *turns])
        return block

    def _clone(self, build: Builder, op: Operation, views: dict[Operation, Value], mapping: dict[Value, Value]) -> None:
        """Copies an operation of the old loop; loads are read from their buffers, or are the buffers."""
        source = copied_from(op)
        if (view := self._converted(op, views)) is not None:
            mapping[op.result] = self.read(build, op.result.type, view)
        elif op in self.schedule.held:
            return
        elif op in views:
            if not all(is_copy_to(user, views[op]) for user in op.result.users()):
                mapping[op.result] = self.read(build, op.result.type, views[op])
        elif source is not None and source in views and is_copy_to(op, views[source]):
            mapping[op.result] = views[source]
        else:
            issue(build, op, mapping, self.schedule.products)

    @staticmethod
    def _converted(op: Operation, views: dict[Operation, Value]) -> Value | None:
        """Returns the buffer of a load that an operation converts, if reading it in the wanted layout costs no more."""
        load = op.operand.defining_op if op.name == "ttg.convert_layout" else None
        if load is None or load not in views or load.name != "tt.load":
            return None
        memory, bits = layout_of(views[load]), memory_bits(op.result.type)
        return views[load] if is_better_read(layout_of(load.result), memory, layout_of(op.result), memory, bits) else None

    # ---- buffers ----

    def _buffers(self, copy: Copy) -> Value:
        """Allocates the buffers of a load, whose location they have: a report of too much shared memory names it."""
        tile = copy.tile
        kind = MemDescType((self.schedule.slots, *tile.shape), tile.element, tile.encoding, True)
        buffers = self.build.create("ttg.local_alloc", (), None, [kind])
        buffers.location = copy.load.location
        return buffers.result

    @staticmethod
    def _view(build: Builder, ring: Value, slot: Value) -> Value:
        kind = ring.type
        assert isinstance(kind, MemDescType)
        tile = MemDescType(kind.shape[1:], kind.element, kind.encoding, True)
        return build.value("ttg.memdesc_index", [ring, slot], None, tile)

    # ---- copies ----

    def _copy(
        self, build: Builder, slot: Value, induction: Value, within: Value, values: Sequence[Value], free: bool = False
    ) -> tuple[list[Value], list[Value]]:
        """Starts the copies of one iteration, given its carried values; returns those of the next, and what is held in registers."""
        mapping: dict[Value, Value] = {self.loop.body.arguments[0]: induction}
        mapping.update(zip(self.slice.carried, values, strict=True))
        self.start_copies(build, slot, within, mapping, free)
        following = [yielded_of(argument) for argument in self.slice.carried]
        return [mapping.get(value, value) for value in following], [mapping[load.result] for load in self.schedule.held]

    def _copy_first(self) -> tuple[list[Value], list[Value]]:
        """Starts the copies for the first iterations; returns the carried values of the one after them, and what they hold in registers."""
        build = self.build
        within = build.value("arith.cmpi", [self.lower, self.upper], {"predicate": "slt"})
        length = build.value("arith.subi", [self.upper, self.lower])
        values: list[Value] = [initial_of(argument) for argument in self.slice.carried]
        held: list[Value] = []
        induction = self.lower
        for stage in range(self.ahead):
            inside = within
            if stage:
                induction = build.value("arith.addi", [induction, self.step])
                inside = build.value("arith.andi", [within, self._is_longer(build, length, stage)])
            values, loaded = self._copy(build, build.constant(stage, I32), induction, inside, values)
            held += loaded
        return values, held

    def _copy_ahead(
        self, build: Builder, induction: Value, place: Sequence[Value], values: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        """Starts the copies of the iteration `ahead` of this one; returns what `_copy` does."""
        left = build.value("arith.subi", [self.upper, induction])
        within = self._is_longer(build, left, self.ahead)
        distance = build.value("arith.muli", [self.step, build.constant(self.ahead, self.step.type)])
        later = build.value("arith.addi", [induction, distance])
        # with a buffer to spare, the one to fill was last read before the barrier that starts the iteration
        return self._copy(build, self.slot_to_fill(build, place), later, within, values, free=self.schedule.meets_first)

    def _is_longer(self, build: Builder, length: Value, steps: int) -> Value:
        """Returns whether a positive length is more than some steps; unsigned, so that no range is too long."""
        distance = build.value("arith.muli", [self.step, build.constant(steps, self.step.type)])
        return build.value("arith.cmpi", [length, distance], {"predicate": "ugt"})

    def _next_slot(self, build: Builder, slot: Value) -> tuple[Value, Value]:
        """Returns the slot after one, round the ring, and whether that is the first."""
        more = build.value("arith.addi", [slot, build.constant(1, I32)])
        wraps = _is(build, more, self.schedule.slots)
        return build.value("arith.select", [wraps, build.constant(0, I32), more]), wraps


def _is(build: Builder, value: Value, number: int) -> Value:
    return build.value("arith.cmpi", [value, build.constant(number, I32)], {"predicate": "eq"}, I1)


class _WithGroups(_Rewriter):
    """cp.async: all threads copy, wait for what they have copied themselves, and then for each other."""

    place_names = ("slot", "slot_ahead")

    def addresses(self, load: Operation) -> Sequence[Value]:
        return addresses_of(load)

    def begin(self, build: Builder) -> None:
        """Adds nothing: groups need no preparation."""

    def start_copies(self, build: Builder, slot: Value, within: Value, mapping: dict[Value, Value], free: bool) -> None:
        for op in self.slice.operations:
            clone = op.clone(mapping)
            if clone.name == "tt.load":  # an address that is itself loaded
                pointer, *rest = clone.operands
                clone.set_operands([pointer, self._and(build, pointer, rest[0] if rest else None, within), *rest[1:]])
            build.insert(clone)
        for copy, buffers in zip(self.schedule.copies, self.buffers, strict=True):
            pointer, *rest = (mapping.get(value, value) for value in addresses_of(copy.load))
            mask = self._and(build, pointer, rest[0] if rest else None, within)
            operands = [pointer, self._view(build, buffers, slot), mask]
            build.create("ttg.async_copy_global_to_local", operands, {"free": free})
        build.create("ttg.async_commit_group")

    @staticmethod
    def _and(build: Builder, pointer: Value, mask: Value | None, within: Value) -> Value:
        """Returns a load's mask, off altogether unless the scalar `within` holds."""
        if isinstance(pointer.type, TensorType):
            within = build.value("tt.splat", [within], None, with_element(pointer.type, I1))
        return within if mask is None else build.value("arith.andi", [mask, within])

    def first_place(self, build: Builder) -> list[Value]:
        return [build.constant(0, I32), build.constant(self.ahead % self.schedule.slots, I32)]

    def enter(self, build: Builder, place: Sequence[Value]) -> None:
        build.create(ARRIVE, (), {"num": self.ahead - 1})
        if self.schedule.meets_first:
            build.create("gpu.barrier")

    def slot_to_fill(self, build: Builder, place: Sequence[Value]) -> Value:
        return place[1]

    def next_place(self, build: Builder, place: Sequence[Value]) -> list[Value]:
        return [self._next_slot(build, slot)[0] for slot in place]

    def read(self, build: Builder, kind: Type, view: Value) -> Value:
        return build.value("ttg.local_load", [view], None, kind)

    def end(self, build: Builder) -> None:
        build.create(ARRIVE, (), {"num": 0})
        for buffers in self.buffers:
            build.create("ttg.local_dealloc", [buffers])


class _WithBarriers(_Rewriter):
    """TMA: one thread copies, and everybody waits for the bytes to arrive at the slot's mbarrier, in the phase of this round."""

    place_names = ("slot", "phase")

    def __init__(self, schedule: LoopSchedule) -> None:
        super().__init__(schedule)
        self.size = sum(block_bytes(block_accessed(load)) for load in schedule.loads)
        self.full = barriers(self.build, schedule.slots)

    def addresses(self, load: Operation) -> Sequence[Value]:
        return operands_called(load, "indices")

    def begin(self, build: Builder) -> None:
        for slot in range(self.schedule.slots):
            build.create("ttng.init_barrier", [self._view(build, self.full, build.constant(slot, I32))], {"count": 1})
        build.create("ttng.fence_mbarrier_init")

    def start_copies(self, build: Builder, slot: Value, within: Value, mapping: dict[Value, Value], free: bool) -> None:
        for op in self.slice.operations:
            build.insert(op.clone(mapping))
        full = self._view(build, self.full, slot)
        build.create("ttng.barrier_expect", [full, within], {"size": self.size})
        for copy, buffers in zip(self.schedule.copies, self.buffers, strict=True):
            coords = [mapping.get(index, index) for index in self.addresses(copy.load)]
            operands = [operand(copy.load, "desc"), *coords, full, self._view(build, buffers, slot), within]
            build.create("ttng.async_tma_copy_global_to_local", operands)

    def first_place(self, build: Builder) -> list[Value]:
        return [build.constant(0, I32)] * 2

    def enter(self, build: Builder, place: Sequence[Value]) -> None:
        slot, phase = place
        build.create("ttng.wait_barrier", [self._view(build, self.full, slot), phase])

    def slot_to_fill(self, build: Builder, place: Sequence[Value]) -> Value:
        slot = place[0]
        if not self.schedule.lag:
            return slot
        before = build.value("arith.subi", [slot, build.constant(1, I32)])
        return build.value("arith.select", [_is(build, slot, 0), build.constant(self.schedule.slots - 1, I32), before])

    def next_place(self, build: Builder, place: Sequence[Value]) -> list[Value]:
        slot, wraps = self._next_slot(build, place[0])
        turn = build.value("arith.extui", [wraps], None, I32)
        return [slot, build.value("arith.xori", [place[1], turn])]

    def read(self, build: Builder, kind: Type, view: Value) -> Value:
        return read_buffer(build, kind, view)

    def end(self, build: Builder) -> None:
        for slot in range(self.schedule.slots):
            build.create("ttng.inval_barrier", [self._view(build, self.full, build.constant(slot, I32))])
