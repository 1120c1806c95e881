"""Which loads may be done iterations early, and what their addresses are computed from."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelpack.analysis.address_sources import AddressSources
from kernelpack.backends.cuda.machine.dialect import DOTS
from kernelpack.backends.cuda.schedule.loop_schedule import LoopSchedule
from kernelpack.ir.core import BlockArgument, Operation, Value
from kernelpack.ir.dialect import Effect, attribute, effects_of, is_pure, operand, operands_called
from kernelpack.ir.dialects.descriptors import LOAD, STORE
from kernelpack.ir.views import Carried, slot_of

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
    written = [argument_names(address_of(op), sources, bases) for op in stores]
    return {load for load in loads if _apart(argument_names(address_of(load), sources, bases), written)}


def address_of(access: Operation) -> Value:
    """Returns the pointer or the descriptor that an access goes through."""
    return operand(access, "desc" if access.name.startswith("tt.descriptor") else "ptr")


def addresses_of(load: Operation) -> list[Value]:
    """Returns what a load's addresses are made of: pointers, and the mask if it has one."""
    return [operand(load, "ptr"), *operands_called(load, "mask")]


def initial_of(argument: BlockArgument) -> Value:
    """Returns the value that a loop's argument has in the first iteration."""
    return _carried(argument).initial


def yielded_of(argument: BlockArgument) -> Value:
    """Returns what an iteration yields for a loop's argument: its value in the next one."""
    return _carried(argument).yielded


def _carried(argument: BlockArgument) -> Carried:
    found = slot_of(argument)
    assert isinstance(found, Carried)
    return found


def _apart(read: frozenset[str] | None, written: Sequence[frozenset[str] | None]) -> bool:
    return read is not None and all(names is not None and read.isdisjoint(names) for names in written)


def _is_volatile(load: Operation) -> bool:
    return load.name == "tt.load" and bool(attribute(load, "is_volatile"))


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
            pending.append(yielded_of(value))
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


def innermost_loops(function: Operation, num_stages: int, scheduled: Sequence[LoopSchedule]) -> Iterator[tuple[Operation, int]]:
    """Yields the loops of a function that ask for two stages or more, with those, inner loops first. A loop that is in `scheduled` by
    then, and what is around one, is left out."""
    for loop in reversed(list(function.walk())):
        stages = loop.attributes.get(NUM_STAGES, num_stages) if loop.name == "scf.for" else 0
        if stages > 1 and not any(loop in (schedule.loop, *schedule.loop.ancestors()) for schedule in scheduled):
            yield loop, stages
