"""What one iteration of each loop of a kernel does, in order, and how far copies and products reach into later iterations: what a timeline shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelpack.ir.core import Block, Location, Operation
from kernelpack.ir.locations import relative_name, user_location
from kernelpack.ir.types import TensorType
from kernelpack.ir.views import LOOPS
from kernelpack.report.places import Chain

KINDS = {
    "tt.load": "load",
    "tt.descriptor_load": "load",
    "tt.store": "store",
    "tt.descriptor_store": "store",
    "tt.atomic_rmw": "store",
    "tt.atomic_cas": "store",
    "ttg.async_copy_global_to_local": "copy",
    "ttng.async_tma_copy_global_to_local": "copy",
    "ttng.async_tma_copy_local_to_global": "copy",
    "ttg.local_store": "shared",
    "ttg.local_alloc": "shared",
    "ttg.local_load": "shared",
    "ttg.convert_layout": "shared",
    "ttg.async_wait": "wait",
    "ttng.wait_barrier": "wait",
    "ttng.wait_barrier_named": "wait",
    "ttng.wait_turn": "wait",
    "ttng.async_tma_store_wait": "wait",
    "ttng.warp_group_dot_wait": "wait",
    "gpu.barrier": "wait",
    "ttng.arrive_barrier": "arrive",
    "ttng.arrive_barrier_named": "arrive",
    "ttng.arrive_turn": "arrive",
    "ttng.barrier_expect": "arrive",
    "tt.dot": "product",
    "ttg.fma_dot": "product",
    "ttng.warp_group_dot": "product",
    "tt.reduce": "compute",
    "tt.scan": "compute",
}
"""What operations are on a timeline, by their names. Others that give tiles are computation; scalars are left out."""
_FILLS = ("ttg.async_copy_global_to_local", "ttng.async_tma_copy_global_to_local")
_REACH = 3
"""A product is waited for before so many iterations have begun after its own."""
_PRODUCT_WAIT = "ttng.warp_group_dot_wait"


@dataclass(frozen=True)
class Step:
    """An operation of an iteration, or `count` operations in a row that compute. What it starts goes on to the step `until` of the iteration
    `later` iterations on; its own number and 0 where it ends at once."""

    kind: str
    name: str
    chain: Chain
    count: int
    until: int
    later: int


@dataclass(frozen=True)
class Loop:
    """A loop that moves or multiplies tiles: the role of warps that runs it ("" where all do), its line, and the steps of an iteration."""

    role: str
    chain: Chain
    steps: tuple[Step, ...]


def loops_of(module: Operation, schedule: str) -> tuple[Loop, ...]:
    """Returns the loops of a module, in order. `schedule` is what its scheduling noted; it says how far copies run ahead."""
    ahead = copies_ahead(schedule)
    found = (_loop(op, ahead) for op in module.walk() if op.name in LOOPS)
    return tuple(loop for loop in found if any(step.kind != "compute" for step in loop.steps))


_LOOP = re.compile(r"^loop at (\d+:\d+): copies (\d+) iterations? ahead", re.MULTILINE)


def copies_ahead(schedule: str) -> dict[str, int]:
    """Returns how many iterations ahead loops copy, by their line and column, from the text of the stage `schedule`. Loops of one place that
    differ, which are copies of a function that was called twice, are left out."""
    found: dict[str, int] = {}
    for place, iterations in _LOOP.findall(schedule):
        found[place] = int(iterations) if found.get(place, int(iterations)) == int(iterations) else 0
    return {place: iterations for place, iterations in found.items() if iterations}


def chain_of(location: Location) -> Chain:
    """Returns where an operation comes from: the user's innermost line first, then those that called it."""
    place: Location | None = user_location(location)
    found = []
    while place is not None and place.source is not None:
        found.append((relative_name(place.source.file), place.source.line))
        place = place.callsite
    return tuple(found)


def _loop(loop: Operation, ahead: Mapping[str, int]) -> Loop:
    operations = [op for op in _in_iteration(loop.regions[-1].block) if _kind(op) is not None]
    groups: list[list[Operation]] = []
    for op in operations:
        if groups and _kind(op) == _kind(groups[-1][-1]) == "compute":
            groups[-1].append(op)
        else:
            groups.append([op])
    place = loop.location.source
    iterations = ahead.get(f"{place.line}:{place.column}", 0) if place is not None else 0
    first_wait = next((number for number, group in enumerate(groups) if _kind(group[0]) == "wait"), 0)
    steps = []
    for number, group in enumerate(groups):
        op, kind = group[0], _kind(group[0])
        assert kind is not None
        until, later = number, 0
        if op.name in _FILLS and iterations:
            until, later = first_wait, iterations
        elif kind == "product":
            until, later = _awaited(number, groups) or (number, 0)
        name = op.name if len(group) == 1 else f"{len(group)} operations on tiles"
        steps.append(Step(kind, name, chain_of(op.location), len(group), until, later))
    return Loop(_role(loop), chain_of(loop.location), tuple(steps))


def _in_iteration(block: Block) -> Iterator[Operation]:
    """Yields the operations of an iteration, also those of branches; inner loops are loops of their own."""
    for op in block.operations:
        yield op
        if op.name == "scf.if":
            for region in op.regions:
                for inner in region.blocks:
                    yield from _in_iteration(inner)


def _kind(op: Operation) -> str | None:
    if op.name in KINDS:
        return KINDS[op.name]
    tiles = any(isinstance(result.type, TensorType) for result in op.results)
    return "compute" if tiles and not op.regions and op.name != "arith.constant" else None


def _awaited(number: int, groups: Sequence[Sequence[Operation]]) -> tuple[int, int] | None:
    """Returns the step that waits for the product of a step, and how many iterations later it is; None for one that ends at once.

    A wait lets only the `pendings` products that were issued last go on.
    """
    if not groups[number][0].attributes.get("isAsync"):
        return None
    issued = 0
    for at in range(number + 1, _REACH * len(groups)):
        later, step = divmod(at, len(groups))
        op = groups[step][0]
        if op.name == _PRODUCT_WAIT and op.attributes["pendings"] <= issued:
            return step, later
        issued += _kind(op) == "product"
    return None


def _role(loop: Operation) -> str:
    """Returns which warps run a loop; "" for all of them."""
    role = next((op for op in loop.ancestors() if op.name == "ttg.role"), None)
    if role is None:
        return ""
    copies, warps = role.attributes["copies"], role.attributes["num_warps"]
    return f"{copies} x {warps} warp{'s' * (warps > 1)}" if copies > 1 else f"{warps} warp{'s' * (warps > 1)}"
