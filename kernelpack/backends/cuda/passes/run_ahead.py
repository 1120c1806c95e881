"""Copies that start iterations before the one that reads them: what loops with cp.async and loops with TMA have in common."""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kernelpack.analysis.address_sources import AddressSources
from kernelpack.backends.cuda.passes.lower_descriptors import LOAD, STORE
from kernelpack.backends.cuda.products_in_flight import PRODUCT
from kernelpack.ir.core import Block, BlockArgument, Builder, Operation, Value
from kernelpack.ir.dialect import Effect, attribute, effects_of, is_pure
from kernelpack.ir.types import I32, MemDescType

DOTS = ("tt.dot", "ttg.fma_dot", PRODUCT)
NUM_STAGES = "tt.num_stages"
"""The attribute of a loop that asks for its own number of stages."""


_LOADS = ("tt.load", LOAD)
_LOOPS = ("scf.for", "scf.while")
_STORES = ("tt.store", "tt.atomic_rmw", STORE, "tt.descriptor_reduce", "tt.descriptor_scatter")


def argument_names(address: Value, sources: AddressSources, bases: Mapping[Value, str]) -> frozenset[str] | None:
    """Returns the names of the kernel's arguments that an address may be made of; None where memory or integers hold it.

    `bases` names the tensors of arguments that are descriptors.
    """
    roots = sources.roots_of(address)
    names = [bases.get(root, root.name) for root in roots if isinstance(root, BlockArgument)]
    return frozenset(names) if len(names) == len(roots) else None


def unwritten(loop: Operation, bases: Mapping[Value, str], products: Collection[str]) -> Collection[Operation]:
    """Returns the loads of a loop that may be done iterations early: no iteration stores to what they read, or orders accesses.

    What a loop without loops in it stores through one argument is taken not to be loaded through another. Triton's pipeliner asks
    less: any load may run ahead of any store.
    """
    inside = [op for op in loop.walk() if op is not loop and op.name not in products]
    loads = {op for op in inside if op.name in _LOADS}
    if any({Effect.SYNCHRONISE, Effect.OTHER} & effects_of(op) for op in inside) or any(map(_is_volatile, loads)):
        return ()
    stores = [op for op in inside if Effect.WRITE_GLOBAL in effects_of(op)]
    if not stores:
        return loads
    # an atomic whose result is used may be a lock
    if any(op.name not in _STORES or any(result.uses for result in op.results) for op in stores):
        return ()
    if any(op.name in _LOOPS for op in inside):
        return ()
    *_, module = loop.ancestors()
    sources = AddressSources(module)
    written = [argument_names(op.operands[0], sources, bases) for op in stores]
    return {load for load in loads if _apart(argument_names(load.operands[0], sources, bases), written)}


def _apart(read: frozenset[str] | None, written: Sequence[frozenset[str] | None]) -> bool:
    return read is not None and all(names is not None and read.isdisjoint(names) for names in written)


def _is_volatile(load: Operation) -> bool:
    return load.name == "tt.load" and bool(attribute(load, "is_volatile"))


def loads_for_dots(loop: Operation) -> set[Operation]:
    """Returns the loads of a loop's body that reach a dot within the iteration."""
    return {op for op in loop.body.operations if op.name == "tt.load" and _feeds_dot(op, loop)}


def _feeds_dot(load: Operation, loop: Operation) -> bool:
    seen: set[Operation] = set()
    pending = [load]
    while pending:
        op = pending.pop()
        for result in op.results:
            for user in result.users():
                if user.name in DOTS:
                    return True
                if user not in seen and user.parent is loop.body and user.name != "scf.yield":
                    seen.add(user)
                    pending.append(user)
    return False


@dataclass(frozen=True)
class Slice:
    """What addresses are computed from: operations of a loop's body, in order, and the values that the loop carries for them."""

    operations: list[Operation]
    carried: list[BlockArgument]

    @property
    def loads(self) -> list[Operation]:
        return [op for op in self.operations if op.name == "tt.load"]


def slice_of(loop: Operation, operands: Sequence[Value]) -> Slice | None:
    """Returns what addresses and masks need, in this iteration or an earlier one; None where that takes more than address
    arithmetic."""
    body = loop.body
    needed: set[Operation] = set()
    seen: set[Value] = set()
    pending = list(operands)
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value, BlockArgument) and value.owner is body and value.index > 0:
            pending.append(body.terminator.operands[value.index - 1])
            continue
        op = value.defining_op
        if op is None or op.parent is not body:
            continue
        if op.regions or op.name in DOTS or not (is_pure(op) or op.name == "tt.load"):
            return None
        needed.add(op)
        pending += op.operands
    carried = [argument for argument in body.arguments[1:] if argument in seen]
    return Slice([op for op in body.operations if op in needed], carried)


class RunAhead(abc.ABC):
    """Replaces one loop whose copies run `ahead` iterations early, with the values of `slice_` that their addresses need.

    `deferred` are the products that stay in flight for an iteration; the first copies start where `build` stands.
    """

    def __init__(self, loop: Operation, ahead: int, deferred: list[Operation], slice_: Slice | None, build: Builder) -> None:
        assert slice_ is not None, "loads are candidates by their addresses"
        self.loop = loop
        self.ahead = ahead
        self.deferred = deferred
        self.slice = slice_
        self.build = build
        self.lower, self.upper, self.step = loop.operands[:3]

    def ring(self, kind: MemDescType, load: Operation) -> Value:
        """Allocates the buffers of a load, whose location they have: a report of too much shared memory names it."""
        buffers = self.build.create("ttg.local_alloc", (), None, [kind])
        buffers.location = load.location
        return buffers.result

    @abc.abstractmethod
    def start_copies(self, build: Builder, slot: Value, within: Value, mapping: dict[Value, Value], free: bool) -> None:
        """Starts the copies of one iteration, whose values `mapping` gives, where the scalar `within` holds. `free`: nobody reads
        the buffers of the slot since the last barrier."""

    def copy(
        self, build: Builder, slot: Value, induction: Value, within: Value, values: Sequence[Value], free: bool = False
    ) -> list[Value]:
        """Starts the copies of one iteration, given its carried values, and returns those of the next."""
        mapping: dict[Value, Value] = {self.loop.body.arguments[0]: induction}
        mapping.update(zip(self.slice.carried, values, strict=True))
        self.start_copies(build, slot, within, mapping, free)
        terminator = self.loop.body.terminator
        following = [terminator.operands[argument.index - 1] for argument in self.slice.carried]
        return [mapping.get(value, value) for value in following]

    def copy_first(self) -> list[Value]:
        """Starts the copies for the first iterations; returns the carried values of the one behind them."""
        build = self.build
        within = build.value("arith.cmpi", [self.lower, self.upper], {"predicate": "slt"})
        length = build.value("arith.subi", [self.upper, self.lower])
        values: list[Value] = [self.loop.operands[2 + argument.index] for argument in self.slice.carried]
        induction = self.lower
        for stage in range(self.ahead):
            inside = within
            if stage:
                induction = build.value("arith.addi", [induction, self.step])
                inside = build.value("arith.andi", [within, self._is_longer(build, length, stage)])
            values = self.copy(build, build.constant(stage, I32), induction, inside, values)
        return values

    def later(self, build: Builder, induction: Value) -> tuple[Value, Value]:
        """Returns the iteration `ahead` of this one, and whether there is one."""
        left = build.value("arith.subi", [self.upper, induction])
        within = self._is_longer(build, left, self.ahead)
        distance = build.value("arith.muli", [self.step, build.constant(self.ahead, self.step.type)])
        return build.value("arith.addi", [induction, distance]), within

    def _is_longer(self, build: Builder, length: Value, steps: int) -> Value:
        """Returns whether a positive length is more than some steps; unsigned, so that no range is too long."""
        distance = build.value("arith.muli", [self.step, build.constant(steps, self.step.type)])
        return build.value("arith.cmpi", [length, distance], {"predicate": "ugt"})

    def open_body(self, ahead: list[Value]) -> tuple[Block, dict[Value, Value], list[Value]]:
        """Returns the new loop's block, its values of the old one's arguments, and its arguments for what runs ahead."""
        old = self.loop.body
        block = Block([argument.type for argument in old.arguments], [argument.name for argument in old.arguments])
        mapping: dict[Value, Value] = dict(zip(old.arguments, block.arguments, strict=True))
        early: list[Value] = [
            block.add_argument(value.type, argument.name and f"{argument.name}_ahead")
            for argument, value in zip(self.slice.carried, ahead, strict=True)
        ]
        return block, mapping, early
