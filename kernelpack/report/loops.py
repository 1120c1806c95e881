"""What one turn of each loop of a kernel does, in order, and how far copies and products reach into later turns: what a timeline shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kernelpack.ir.core import Block, Location, Operation, Value
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
_PRODUCT_WAIT = "ttng.warp_group_dot_wait"


@dataclass(frozen=True)
class Step:
    """An operation of a turn, or `count` operations in a row that compute. What it starts goes on to the step `until` of the turn
    `later` turns on; its own number and 0 where it ends at once."""

    kind: str
    name: str
    chain: Chain
    count: int
    until: int
    later: int


@dataclass(frozen=True)
class Loop:
    """A loop that moves or multiplies tiles: the role of warps that runs it ("" where all do), its line, and the steps of a turn."""

    role: str
    chain: Chain
    steps: tuple[Step, ...]


def loops_of(module: Operation, schedule: str) -> tuple[Loop, ...]:
    """Returns the loops of a module, in order. `schedule` is what its scheduling noted; it says how far copies run ahead."""
    ahead = copies_ahead(schedule)
    found = (_loop(op, ahead) for op in module.walk() if op.name in LOOPS)
    return tuple(loop for loop in found if any(step.kind != "compute" for step in loop.steps))


_LOOP = re.compile(r"^loop at .*?: copies (\d+) iterations? ahead")
_COPY = re.compile(r"^  copy (\d+:\d+): ")


def copies_ahead(schedule: str) -> dict[str, int]:
    """Returns how many iterations ahead copies run, by the line and column of their loads, from the text of the stage `schedule`."""
    found: dict[str, int] = {}
    ahead = 0
    for line in schedule.split("\n"):
        if not line.startswith(" "):
            loop = _LOOP.match(line)
            ahead = int(loop[1]) if loop is not None else 0
        elif ahead and (copy := _COPY.match(line)) is not None:
            found[copy[1]] = ahead
    return found


def chain_of(location: Location) -> Chain:
    """Returns where an operation comes from: the user's innermost line first, then those that called it."""
    place: Location | None = user_location(location)
    found = []
    while place is not None and place.source is not None:
        found.append((relative_name(place.source.file), place.source.line))
        place = place.callsite
    return tuple(found)


def _loop(loop: Operation, ahead: Mapping[str, int]) -> Loop:
    body = loop.regions[-1].block
    operations = [op for op in _in_turn(body) if _kind(op) is not None]
    groups: list[list[Operation]] = []
    for op in operations:
        if groups and _kind(op) == _kind(groups[-1][-1]) == "compute":
            groups[-1].append(op)
        else:
            groups.append([op])
    numbers = {op: number for number, group in enumerate(groups) for op in group}
    first_wait = next((number for number, group in enumerate(groups) if _kind(group[0]) == "wait"), 0)
    steps = []
    for number, group in enumerate(groups):
        op, kind = group[0], _kind(group[0])
        assert kind is not None
        until, later = number, 0
        place = op.location.source
        if kind == "copy" and place is not None and (turns := ahead.get(f"{place.line}:{place.column}")) is not None:
            until, later = first_wait, turns
        elif kind == "product":
            until, later = _awaited(op, body, numbers) or (number, 0)
        name = op.name if len(group) == 1 else f"{len(group)} operations on tiles"
        steps.append(Step(kind, name, chain_of(op.location), len(group), until, later))
    return Loop(_role(loop), chain_of(loop.location), tuple(steps))


def _in_turn(block: Block) -> Iterator[Operation]:
    """Yields the operations of a turn, also those of branches; inner loops are loops of their own."""
    for op in block.operations:
        yield op
        if op.name == "scf.if":
            for region in op.regions:
                for inner in region.blocks:
                    yield from _in_turn(inner)


def _kind(op: Operation) -> str | None:
    if op.name in KINDS:
        return KINDS[op.name]
    tiles = any(isinstance(result.type, TensorType) for result in op.results)
    return "compute" if tiles and not op.regions and op.name != "arith.constant" else None


def _awaited(product: Operation, body: Block, numbers: Mapping[Operation, int]) -> tuple[int, int] | None:
    """Returns the step that waits for a product, and how many turns later it is; None where the product is not waited for in the loop."""
    if not product.attributes.get("isAsync"):
        return None
    value: Value = product.result
    for later in (0, 1):
        waits = [user for user in value.users() if user.name == _PRODUCT_WAIT and user in numbers]
        if waits:
            return numbers[waits[0]], later
        carried = [index for user, index in value.uses if user is body.terminator]
        if not carried:
            return None
        offset = len(body.arguments) - len(body.terminator.operands)  # an scf.for's counter comes before what it carries
        value = body.arguments[offset + carried[0]]
    return None


def _role(loop: Operation) -> str:
    """Returns which warps run a loop; "" for all of them."""
    role = next((op for op in loop.ancestors() if op.name == "ttg.role"), None)
    if role is None:
        return ""
    copies, warps = role.attributes["copies"], role.attributes["num_warps"]
    return f"{copies} x {warps} warp{'s' * (warps > 1)}" if copies > 1 else f"{warps} warp{'s' * (warps > 1)}"
