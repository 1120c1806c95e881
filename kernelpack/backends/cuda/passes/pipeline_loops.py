"""Loads tiles for dots ahead of time: asynchronous copies fill buffers for later iterations while the current one computes.

    for i:                              for s in 0 .. S-2:  copy tile s to buffer s; commit
        a = load pa            =>       for i:  wait until at most S-2 groups are in flight
        c = dot a, ...                          copy tile i+S-1 to its buffer; commit
        pa = pa + step                          c = dot (buffer i), ...

What the addresses of a load depend on runs ahead of the loop: it is computed S-1 iterations early, from copies of the loop's
carried values. Copies beyond the last iteration are masked off.

A product of warpgroups that the loop only sums up stays in flight while the next iteration starts (`wait until at most one
product is in flight` ends the body), and so do some that defer_products finds. Their tiles are read for an iteration longer, so
they have one buffer more; copies are then issued behind the first product, which they need not hold up. Where that buffer does not
fit, they are issued behind the wait and another barrier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.cuda.async_copy import can_copy_async
from kernelpack.backends.cuda.memory_layouts import element_bits, memory_bits
from kernelpack.backends.cuda.passes.run_ahead import DOTS, NUM_STAGES, RunAhead, loads_for_dots, slice_of, unwritten
from kernelpack.backends.cuda.products_in_flight import (
    PRODUCT,
    await_behind,
    deferrable,
    fit,
    has_lasting,
    keep_in_flight,
)
from kernelpack.ir.core import Block, Builder, Operation, Region, Value
from kernelpack.ir.dialect import attribute, optional_operand
from kernelpack.ir.types import I1, I32, MemDescType, TensorType, with_element
from kernelpack.layout.convert import best_copied
from kernelpack.layout.encoding import SharedEncoding, layout_of


def pipeline_loops(function: Operation, num_stages: int, bases: Mapping[Value, str], shared_bytes: int = 1 << 30) -> None:
    """Rewrites a ttgir function in place. Buffers that only keep products in flight are left out where they do not fit into
    `shared_bytes`. `bases` names the tensors of arguments that are descriptors."""
    facts = AxisInfoAnalysis(function)
    for op in reversed(list(function.walk())):  # inner loops first: only they are pipelined
        if op.name == "scf.for":
            stages = op.attributes.get(NUM_STAGES, num_stages)
            loads = _candidates(op, facts, bases) if stages > 1 else []
            if loads:
                sources = [load.op for load in loads]
                deferred = deferrable(op, sources)
                ahead, lag = fit(op, sources, stages - 1, has_lasting(op, sources), bool(deferred), shared_bytes)
                _Pipeline(op, loads, ahead, lag, deferred).run()


@dataclass(frozen=True)
class _Load:
    """A load to run ahead, and the layout of its buffers."""

    op: Operation
    memory: SharedEncoding

    @property
    def tile(self) -> TensorType:
        kind = self.op.result.type
        assert isinstance(kind, TensorType)
        return kind


def _candidates(loop: Operation, facts: AxisInfoAnalysis, bases: Mapping[Value, str]) -> list[_Load]:
    """Returns the loads of a loop that feed its dots and can run ahead; where there are any, also those of vectors, such as the
    scales of what the dots sum up."""
    steady, feeding = unwritten(loop, bases, DOTS), loads_for_dots(loop)
    found, addresses = [], set()
    for op in loop.body.operations:
        if op.name != "tt.load" or op not in steady or not op.result.uses or not isinstance(op.result.type, TensorType):
            continue
        if len(op.result.type.shape) > 1 and op not in feeding:
            continue
        load, slice_ = _as_async(op, facts), slice_of(loop, op.operands[:2])
        if load is not None and slice_ is not None and all(other in steady for other in slice_.loads):
            found.append(load)
            addresses.update(slice_.loads)
    # a load that another one's address depends on runs ahead with that address, without a buffer
    found = [load for load in found if load.op not in addresses]
    return found if any(load.op in feeding for load in found) else []


def _as_async(op: Operation, facts: AxisInfoAnalysis) -> _Load | None:
    """Returns how a load can be an asynchronous copy, which fills with zeros and moves at least four bytes; None if it cannot."""
    other = optional_operand(op, "other")
    if attribute(op, "is_volatile") or (other is not None and not _is_zero(other)):
        return None
    kind = op.result.type
    assert isinstance(kind, TensorType)
    if kind.element == I1:
        return None
    buffers = [user for user in op.result.users() if user.name == "ttg.local_alloc"]
    encoding = buffers[0].result.type.encoding if buffers and isinstance(buffers[0].result.type, MemDescType) else None
    if isinstance(encoding, SharedEncoding):
        memory = encoding
    else:
        memory = SharedEncoding(best_copied(layout_of(op.result), memory_bits(kind)))
    pointer, mask = op.operands[0], optional_operand(op, "mask")
    return _Load(op, memory) if can_copy_async(pointer, mask, memory.layout, element_bits(op), facts) else None


def _is_zero(value: Value) -> bool:
    op = value.defining_op
    return op is not None and op.name == "arith.constant" and not op.attributes["value"]


class _Pipeline(RunAhead):
    """Replaces one loop. The new one carries what the old one did, the values that run ahead, and two slots of the buffers."""

    def __init__(self, loop: Operation, loads: list[_Load], ahead: int, lag: int, deferred: list[Operation]) -> None:
        """Copies run `ahead` iterations early, and `lag` iterations longer than the tiles' own are they read."""
        slice_ = slice_of(loop, [operand for load in loads for operand in load.op.operands[:2]])
        super().__init__(loop, ahead, deferred, slice_, Builder.before(loop))
        self.loads = loads
        self.lag = lag
        self.slots = ahead + 1 + lag
        self.buffers = [self._buffer(load) for load in loads]

    def run(self) -> None:
        ahead = self.copy_first()
        block = self._block(ahead)
        first, last = self.build.constant(0, I32), self.build.constant(self.ahead, I32)
        operands = [*self.loop.operands, *ahead, first, last]
        types = [value.type for value in operands[3:]]
        loop = self.build.create("scf.for", operands, self.loop.attributes, types, [Region([block])])
        self.build.create("ttg.async_wait", (), {"num": 0})
        for buffer in self.buffers:
            self.build.create("ttg.local_dealloc", [buffer])
        for old, result in zip(self.loop.results, loop.results, strict=False):
            result.name = old.name
            old.replace_all_uses_with(result)
        await_behind(loop, self.deferred)
        self.loop.drop()

    def _buffer(self, load: _Load) -> Value:
        kind = MemDescType((self.slots, *load.tile.shape), load.tile.element, load.memory, True)
        return self.ring(kind, load.op)

    @staticmethod
    def _view(build: Builder, load: _Load, buffer: Value, slot: Value) -> Value:
        kind = MemDescType(load.tile.shape, load.tile.element, load.memory, True)
        return build.value("ttg.memdesc_index", [buffer, slot], None, kind)

    def start_copies(self, build: Builder, slot: Value, within: Value, mapping: dict[Value, Value], free: bool) -> None:
        for op in self.slice.operations:
            clone = op.clone(mapping)
            if clone.name == "tt.load":  # an address that is itself loaded
                pointer, *rest = clone.operands
                clone.set_operands([pointer, self._and(build, pointer, rest[0] if rest else None, within), *rest[1:]])
            build.insert(clone)
        for load, buffer in zip(self.loads, self.buffers, strict=True):
            pointer, *rest = (mapping.get(operand, operand) for operand in load.op.operands[:2])
            mask = self._and(build, pointer, rest[0] if rest else None, within)
            build.create(
                "ttg.async_copy_global_to_local", [pointer, self._view(build, load, buffer, slot), mask], {"free": free}
            )
        build.create("ttg.async_commit_group")

    @staticmethod
    def _and(build: Builder, pointer: Value, mask: Value | None, within: Value) -> Value:
        """Returns a load's mask, off altogether unless the scalar `within` holds."""
        if isinstance(pointer.type, TensorType):
            within = build.value("tt.splat", [within], None, with_element(pointer.type, I1))
        return within if mask is None else build.value("arith.andi", [mask, within])

    def _block(self, ahead: list[Value]) -> Block:
        old = self.loop.body
        block, mapping, early = self.open_body(ahead)
        slot, slot_ahead = block.add_argument(I32, "slot"), block.add_argument(I32, "slot_ahead")
        build = Builder(block, location=self.loop.location)
        induction = block.arguments[0]
        build.create("ttg.async_wait", (), {"num": self.ahead - 1})
        if self.lag:
            build.create("gpu.barrier")
        following: list[Value] | None = None
        if not self.lag and not self.deferred:
            following = self._copy_ahead(build, induction, slot_ahead, early)
        views = {load.op: self._view(build, load, buffer, slot) for load, buffer in zip(self.loads, self.buffers, strict=True)}
        for op in old.operations[:-1]:
            self._clone(build, op, views, mapping)
            if self.lag and following is None and op.name == PRODUCT:  # an empty list is one too: addresses may carry nothing
                following = self._copy_ahead(build, induction, slot_ahead, early)
        keep_in_flight(build, mapping, self.deferred)
        if following is None:
            following = self._copy_ahead(build, induction, slot_ahead, early)
        yielded = [mapping.get(value, value) for value in old.terminator.operands]
        slots = [self._next(build, place) for place in (slot, slot_ahead)]
        build.create("scf.yield", [*yielded, *following, *slots])
        return block

    def _copy_ahead(self, build: Builder, induction: Value, slot: Value, values: Sequence[Value]) -> list[Value]:
        """Starts the copies of the iteration `ahead` of this one; returns the carried values of the one behind that."""
        later, within = self.later(build, induction)
        # with a buffer to spare, the one to fill was last read before the barrier that starts the iteration
        return self.copy(build, slot, later, within, values, free=bool(self.lag))

    def _clone(self, build: Builder, op: Operation, views: dict[Operation, Value], mapping: dict[Value, Value]) -> None:
        """Copies an operation of the old loop; loads that run ahead are read from their buffers, or are the buffers."""
        source = op.operands[0].defining_op if op.operands else None
        if op in views:
            if not all(self._is_buffer(user, views[op]) for user in op.result.users()):
                mapping[op.result] = build.value("ttg.local_load", [views[op]], None, op.result.type)
        elif source is not None and source in views and self._is_buffer(op, views[source]):
            mapping[op.result] = views[source]
        else:
            build.insert(op.clone(mapping))

    @staticmethod
    def _is_buffer(op: Operation, view: Value) -> bool:
        """Whether an operation only copies a tile to where the buffer already has it."""
        if op.name != "ttg.local_alloc":
            return False
        kind = op.result.type
        assert isinstance(kind, MemDescType)
        assert isinstance(view.type, MemDescType)
        return kind.encoding == view.type.encoding

    def _next(self, build: Builder, slot: Value) -> Value:
        """Returns the slot behind `slot`, round the ring."""
        more = build.value("arith.addi", [slot, build.constant(1, I32)])
        wraps = build.value("arith.cmpi", [more, build.constant(self.slots, I32)], {"predicate": "eq"})
        return build.value("arith.select", [wraps, build.constant(0, I32), more])
