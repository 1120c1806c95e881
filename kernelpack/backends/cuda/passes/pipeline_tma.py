"""Loads blocks ahead of time: TMA fills a ring of buffers for later iterations while the current one computes.

    for i:                                  for s in 0 .. S-2:  expect full[s]; copy block s to buffer s
        a = descriptor_load d[.., i]  =>    for i:  wait for full[slot], phase
        c = dot a, ...                              c = dot (buffer slot), ...
                                                    wait until one product is in flight: that of i-1 is done
                                                    expect full[slot-1]; copy block i+S-1 to buffer slot-1

One thread issues the copies behind the products, which they would hold up otherwise; their bytes arrive at the buffer's mbarrier.
Without products that stay in flight, the buffer of the iteration itself is filled again. Coordinates run ahead as addresses do in
pipeline_loops.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelpack.backends.cuda.memory_layouts import memory_bits
from kernelpack.backends.cuda.passes.lower_descriptors import (
    LOAD,
    barriers,
    block_bytes,
    buffer_type,
    is_copy_to,
    read_buffer,
)
from kernelpack.backends.cuda.passes.run_ahead import DOTS, NUM_STAGES, RunAhead, Slice, slice_of, unwritten
from kernelpack.backends.cuda.products_in_flight import WAIT, await_behind, deferrable, keep_in_flight
from kernelpack.backends.cuda.roles import role_of
from kernelpack.ir.core import Block, Builder, Operation, Region, Value
from kernelpack.ir.dialect import Effect, effects_of, operands_called
from kernelpack.ir.dialects.descriptors import block_of
from kernelpack.ir.types import I1, I32, MemDescType, shape_of

_PRODUCTS = (*DOTS, WAIT)


def pipeline_tma(function: Operation, num_stages: int, bases: Mapping[Value, str], shared_bytes: int = 1 << 30) -> None:
    """Rewrites a ttgir function in place. Loops whose blocks do not fit into `shared_bytes` in so many stages have fewer. `bases`
    names the tensors of arguments that are descriptors."""
    for op in reversed(list(function.walk())):  # inner loops first: only they are pipelined
        if op.name == "scf.for" and role_of(op) is None:
            stages = op.attributes.get(NUM_STAGES, num_stages)
            loads = _candidates(op, bases) if stages > 1 else []
            if loads:
                deferred = deferrable(op, loads)
                early = _earliest(op, loads)
                start = next(s for s in (early, op) if s is op or _slots(function, op, loads, shared_bytes, s) >= stages)
                slots = min(stages, _slots(function, op, loads, shared_bytes, start))
                if slots > 1:
                    _Ring(op, loads, slots, deferred, start).run()


def _candidates(loop: Operation, bases: Mapping[Value, str]) -> list[Operation]:
    """Returns the loads of a loop that can run ahead."""
    steady = unwritten(loop, bases, _PRODUCTS)
    found = []
    for op in loop.body.operations:
        if op.name == LOAD and op in steady:
            slice_ = slice_of(loop, operands_called(op, "indices"))
            if slice_ is not None and all(other in steady for other in slice_.loads):
                found.append(op)
    return found


def _slice(loop: Operation, loads: list[Operation]) -> Slice:
    found = slice_of(loop, [index for load in loads for index in operands_called(load, "indices")])
    assert found is not None
    return found


def _earliest(loop: Operation, loads: list[Operation]) -> Operation:
    """Returns the operation in front of which the first copies can start: behind all that their coordinates need, behind what
    may write what they read, and behind loads that are waited for before."""
    slice_ = _slice(loop, loads)
    needed = {*loop.operands[:3], *(loop.operands[2 + argument.index] for argument in slice_.carried)}
    needed |= {operand for op in (*slice_.operations, *loads) for operand in op.operands}
    block = loop.parent
    assert block is not None
    start = loop
    for op in reversed(block.operations[: block.operations.index(loop)]):
        keeps = op.name in _PRODUCTS or not {Effect.WRITE_GLOBAL, Effect.SYNCHRONISE, Effect.OTHER} & effects_of(op)
        if not keeps or op.name == LOAD or any(result in needed for result in op.results):
            break
        start = op
    return start


def _slots(function: Operation, loop: Operation, loads: list[Operation], limit: int, start: Operation) -> int:
    """Returns how many iterations' blocks fit beside the other buffers that are in use from `start` to the end of the loop."""
    assert loop.parent is not None
    before = loop.parent.operations[loop.parent.operations.index(start) : loop.parent.operations.index(loop)]
    replaced = {user for load in loads for user in load.result.users() if user.name == "ttg.local_alloc"}
    others = [
        op
        for op in function.walk()
        if op.name == "ttg.local_alloc"
        and op not in replaced
        and (op in before or loop in op.ancestors() or any(loop in user.ancestors() for user in op.result.users()))
    ]
    taken = sum(math.prod(shape_of(op.result.type)) * memory_bits(op.result.type) // 8 for op in others)
    return (limit - taken) // sum(block_bytes(block_of(load.operands[0].type)) + 8 for load in loads)


@dataclass(frozen=True)
class _Stage:
    """Where in the ring an iteration is: the buffers' number, and the parity of the phase in which they are full."""

    slot: Value
    phase: Value


class _Ring(RunAhead):
    """Replaces one loop. The new one carries what the old one did, the coordinates that run ahead, and its place in the ring."""

    def __init__(
        self, loop: Operation, loads: list[Operation], slots: int, deferred: list[Operation], start: Operation
    ) -> None:
        """The first copies start in front of `start`."""
        self.lag = 1 if deferred else 0
        super().__init__(loop, slots - self.lag, deferred, _slice(loop, loads), Builder.before(start))
        self.loads = loads
        self.slots = slots
        self.size = sum(block_bytes(block_of(load.operands[0].type)) for load in loads)
        self.buffers = [self._buffer(load) for load in loads]
        self.full = barriers(self.build, slots)

    def run(self) -> None:
        build = self.build
        for slot in range(self.slots):
            build.create("ttng.init_barrier", [self._view(build, self.full, build.constant(slot, I32))], {"count": 1})
        build.create("ttng.fence_mbarrier_init")
        ahead = self.copy_first()
        block = self._block(ahead)
        zero = build.constant(0, I32)
        build = Builder.before(self.loop)
        operands = [*self.loop.operands, *ahead, zero, zero]
        types = [value.type for value in operands[3:]]
        loop = build.create("scf.for", operands, self.loop.attributes, types, [Region([block])])
        for slot in range(self.slots):
            build.create("ttng.inval_barrier", [self._view(build, self.full, build.constant(slot, I32))])
        for old, result in zip(self.loop.results, loop.results, strict=False):
            result.name = old.name
            old.replace_all_uses_with(result)
        await_behind(loop, self.deferred)
        self.loop.drop()

    # ---- buffers ----

    def _buffer(self, load: Operation) -> Value:
        tile = buffer_type(block_of(load.operands[0].type))
        return self.ring(MemDescType((self.slots, *tile.shape), tile.element, tile.encoding, True), load)

    @staticmethod
    def _view(build: Builder, ring: Value, slot: Value) -> Value:
        kind = ring.type
        assert isinstance(kind, MemDescType)
        return build.value(
            "ttg.memdesc_index", [ring, slot], None, MemDescType(kind.shape[1:], kind.element, kind.encoding, True)
        )

    # ---- copies ----

    def start_copies(self, build: Builder, slot: Value, within: Value, mapping: dict[Value, Value], free: bool) -> None:
        for op in self.slice.operations:
            build.insert(op.clone(mapping))
        full = self._view(build, self.full, slot)
        build.create("ttng.barrier_expect", [full, within], {"size": self.size})
        for load, ring in zip(self.loads, self.buffers, strict=True):
            coords = [mapping.get(index, index) for index in operands_called(load, "indices")]
            operands = [load.operands[0], *coords, full, self._view(build, ring, slot), within]
            build.create("ttng.async_tma_copy_global_to_local", operands)

    # ---- the loop ----

    def _block(self, ahead: list[Value]) -> Block:
        old = self.loop.body
        block, mapping, early = self.open_body(ahead)
        stage = _Stage(block.add_argument(I32, "slot"), block.add_argument(I32, "phase"))
        build = Builder(block, location=self.loop.location)
        build.create("ttng.wait_barrier", [self._view(build, self.full, stage.slot), stage.phase])
        views = {load: self._view(build, ring, stage.slot) for load, ring in zip(self.loads, self.buffers, strict=True)}
        for op in old.operations[:-1]:
            self._clone(build, op, views, mapping)
        keep_in_flight(build, mapping, self.deferred)
        following = self._refill(build, block.arguments[0], stage, early)
        yielded = [mapping.get(value, value) for value in old.terminator.operands]
        behind = self._next(build, stage)
        build.create("scf.yield", [*yielded, *following, behind.slot, behind.phase])
        return block

    def _clone(self, build: Builder, op: Operation, views: dict[Operation, Value], mapping: dict[Value, Value]) -> None:
        """Copies an operation of the old loop; loads are read from their buffers, or are the buffers."""
        source = op.operands[0].defining_op if op.operands else None
        if op in views:
            copies = [user for user in op.result.users() if is_copy_to(user, views[op])]
            if len(copies) < len(op.result.users()):
                mapping[op.result] = read_buffer(build, op.result.type, views[op])
        elif source is not None and source in views and is_copy_to(op, views[source]):
            mapping[op.result] = views[source]
        else:
            build.insert(op.clone(mapping))

    def _refill(self, build: Builder, induction: Value, stage: _Stage, values: Sequence[Value]) -> list[Value]:
        """Starts the copies of the iteration `ahead` of this one; returns the carried values of the one behind that."""
        later, within = self.later(build, induction)
        slot = stage.slot
        if self.lag:
            before = build.value("arith.subi", [slot, build.constant(1, I32)])
            slot = build.value("arith.select", [self._is(build, slot, 0), build.constant(self.slots - 1, I32), before])
        return self.copy(build, slot, later, within, values)

    def _next(self, build: Builder, stage: _Stage) -> _Stage:
        """Returns the place behind one, round the ring; the phase turns with it."""
        more = build.value("arith.addi", [stage.slot, build.constant(1, I32)])
        wraps = self._is(build, more, self.slots)
        slot = build.value("arith.select", [wraps, build.constant(0, I32), more])
        turn = build.value("arith.extui", [wraps], None, I32)
        return _Stage(slot, build.value("arith.xori", [stage.phase, turn]))

    @staticmethod
    def _is(build: Builder, value: Value, number: int) -> Value:
        return build.value("arith.cmpi", [value, build.constant(number, I32)], {"predicate": "eq"}, I1)
