"""Which loads of a kernel a warp of its own can do, ahead of the products that read them: what specialize_warps needs to know.

A load qualifies if nothing but products of its block reads its tile, if the loops and branches around it and its coordinates follow
from what one warp can compute by itself, and if nothing that comes before it can write what it reads.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernelpack.analysis.address_sources import AddressSources
from kernelpack.backends.cuda.memory_layouts import memory_bits
from kernelpack.backends.cuda.passes.lower_descriptors import LOAD, STORE, block_bytes, buffer_type
from kernelpack.backends.cuda.passes.run_ahead import NUM_STAGES, argument_names
from kernelpack.backends.cuda.products_in_flight import PRODUCT, WAIT, deferrable
from kernelpack.backends.cuda.roles import WARPGROUP
from kernelpack.backends.cuda.scratch import scratch_bytes
from kernelpack.ir.core import Block, Operation, Value
from kernelpack.ir.dialect import Effect, effects_of, is_pure
from kernelpack.ir.dialects.descriptors import block_of
from kernelpack.ir.types import MemDescType, TensorType, shape_of
from kernelpack.passes.structured import slots

ASKED = "tt.warp_specialize"
"""The attribute of a loop whose loads, and those of loops in it, are to have a warp of their own."""
_AROUND = ("scf.for", "scf.if")
_COUNTED = (PRODUCT, WAIT)
_ORDERED = frozenset({Effect.WRITE_GLOBAL, Effect.SYNCHRONISE, Effect.OTHER})

Key = tuple[tuple[Value, object], ...]


@dataclass(frozen=True, eq=False)
class Group:
    """Loads of a block that the same products read. `done` is the operation of the block behind which nobody reads them; None where
    the products end in the next iteration of the loop."""

    loads: tuple[Operation, ...]
    done: Operation | None

    @property
    def key(self) -> Key:
        return tuple((load.operands[0], buffer_type(block_of(load.operands[0].type))) for load in self.loads)


@dataclass(frozen=True)
class Plan:
    """The groups, the loops and branches around them, what the role that loads can compute, products that outlast an iteration."""

    groups: tuple[Group, ...]
    around: frozenset[Operation]
    scalars: frozenset[Value]
    deferred: Mapping[Operation, list[Operation]]

    @property
    def loads(self) -> frozenset[Operation]:
        return frozenset(load for group in self.groups for load in group.loads)

    @property
    def rings(self) -> dict[Key, tuple[Operation, ...]]:
        return {group.key: group.loads for group in self.groups}

    @property
    def stages(self) -> int:
        """How many buffers a loop asks for; 0 if none does."""
        return max((int(op.attributes.get(NUM_STAGES, 0)) for op in self.around), default=0)


def plan_copies(function: Operation, bases: Mapping[Value, str], num_warps: int) -> Plan:
    deferred: dict[Operation, list[Operation]] = {}
    groups = list(_groups(function, deferred))
    asked = {group.key for group in groups if any(ASKED in op.attributes for op in _loops_around(group))}
    wanted = asked | (
        {group.key for group in groups if any(map(_is_chain, _loops_around(group)))} if num_warps > WARPGROUP else set()
    )
    while True:
        around = frozenset(op for group in groups for op in group.loads[0].ancestors() if op is not function)
        scalars = _scalars(function, around)
        unfit = {
            group.loads[0].parent
            for group in groups
            if group.key not in wanted
            or not _reachable(group, function, scalars)
            or not _unchanged(group, function, bases if asked else {})
            or (group.done is None and _shares_ring(group, groups))
        }
        if not unfit:
            break
        groups = [group for group in groups if group.loads[0].parent not in unfit]
    return Plan(tuple(groups), around, scalars, {loop: deferred[loop] for loop in around if deferred.get(loop)})


def _is_chain(loop: Operation) -> bool:
    """Whether a loop multiplies what it has computed from a product."""
    return any(op.name == PRODUCT and isinstance(op.operands[0].type, TensorType) for op in loop.body.operations)


def _shares_ring(group: Group, groups: Iterable[Group]) -> bool:
    """Whether the loop of a group fills the same ring for others, too."""
    loop = group.loads[0].parent_op
    assert loop is not None
    return any(other is not group and other.key == group.key and loop in other.loads[0].ancestors() for other in groups)


def _loops_around(group: Group) -> list[Operation]:
    return [op for op in group.loads[0].ancestors() if op.name == "scf.for"]


def _groups(function: Operation, deferred: dict[Operation, list[Operation]]) -> Iterable[Group]:
    """Yields the loads that nothing but products of the same block reads; says which products their loops may defer."""
    by_block: dict[Block, list[Operation]] = {}
    for op in function.walk():
        if op.name == LOAD and op.parent is not None and _products(op):
            by_block.setdefault(op.parent, []).append(op)
    for block, loads in by_block.items():
        loop = loads[0].parent_op
        assert loop is not None
        late = deferrable(loop, loads) if loop.name == "scf.for" else []
        deferred[loop] = late
        together: dict[tuple[Operation, ...], list[Operation]] = {}
        for load in loads:
            together.setdefault(tuple(_products(load)), []).append(load)
        for products, members in together.items():
            ends_later = any(product in late for product in products)
            done = None if ends_later else _behind(block, products)
            if ends_later or done is not None:
                yield Group(tuple(members), done)


def _products(load: Operation) -> list[Operation]:
    """Returns the products that read a load's tile; none where anything else reads it, too."""
    kind, found = buffer_type(block_of(load.operands[0].type)), []
    pending = load.result.users()
    while pending:
        user = pending.pop(0)
        if user.name == "ttg.local_alloc":
            assert isinstance(user.result.type, MemDescType)
            if user.result.type.encoding != kind.encoding:
                return []
            pending += user.result.users()
        elif user.name == "ttg.memdesc_trans":
            pending += user.result.users()
        elif user.name == PRODUCT and user.parent is load.parent:
            found.append(user)
        else:
            return []
    assert load.parent is not None
    return [op for op in load.parent.operations if op in found]


def _behind(block: Block, products: Sequence[Operation]) -> Operation | None:
    """Returns the operation of a block behind which products are done; None where they may be in flight at its end."""
    last, issued = products[-1], 0
    if not last.attributes.get("isAsync"):
        return last
    for op in block.operations[block.operations.index(last) + 1 :]:
        if op.name == PRODUCT:
            if not op.attributes.get("isAsync"):
                return op
            issued += 1
        elif op.name == WAIT and op.attributes["pendings"] <= issued:
            return op
    return None


def _scalars(function: Operation, around: Collection[Operation]) -> frozenset[Value]:
    """Returns the values that a single warp can compute by itself, given the loops and branches that it goes through."""
    inside = [op for op in function.walk() if op.parent_op is function or op.parent_op in around]
    known = {value for op in inside for value in op.results} | set(function.body.arguments)
    known |= {argument for op in around for region in op.regions for block in region.blocks for argument in block.arguments}
    known = {value for value in known if not isinstance(value.type, TensorType)}
    before = -1
    while before != len(known):
        before = len(known)
        for op in inside:
            if op in around:
                for slot in slots(op):
                    if not known.issuperset(slot.source_values()):
                        known.difference_update(slot.values)
            elif op.regions or not is_pure(op) or not known.issuperset(op.operands):
                known.difference_update(op.results)
    return frozenset(known)


def _reachable(group: Group, function: Operation, scalars: frozenset[Value]) -> bool:
    """Whether the role that loads can go through what is around the loads, and knows what they load."""
    needed = [value for load in group.loads for value in load.operands]
    for op in group.loads[0].ancestors():
        if op is function:
            break
        if op.name not in _AROUND:
            return False
        needed += op.operands[: 3 if op.name == "scf.for" else 1]
    return scalars.issuperset(needed)


def _unchanged(group: Group, function: Operation, bases: Mapping[Value, str]) -> bool:
    """Whether nothing that comes before loads, in the same or an earlier iteration, can write what they read, or orders them.

    What is stored through one argument of `bases` is not loaded through another: that is what kernels that ask for roles promise.
    """
    everything = list(function.walk())
    last = everything.index(group.loads[-1])
    loops = set(_loops_around(group))
    *_, module = group.loads[0].ancestors()
    sources = AddressSources(module)
    read = {bases.get(load.operands[0]) for load in group.loads}
    for number, op in enumerate(everything):
        if op.regions or op.name in _COUNTED or not _ORDERED & effects_of(op) or op is function:
            continue
        if number > last and loops.isdisjoint(op.ancestors()):
            continue
        written = argument_names(op.operands[0], sources, bases) if op.name in ("tt.store", STORE) else None
        if written is None or None in read or not written.isdisjoint(read):
            return False
    return True


def room_for_rings(function: Operation, plan: Plan, limit: int) -> int:
    """Returns how many buffers of each ring fit beside all that the function keeps in shared memory else."""
    replaced = {user for load in plan.loads for user in load.result.users()}
    kept = sum(_bytes(op.result.type) for op in function.walk() if op.name == "ttg.local_alloc" and op not in replaced)
    passing = [
        block_bytes(block_of(op.operands[0].type)) if op.name in (LOAD, STORE) else scratch_bytes(op)
        for op in function.walk()
        if op not in plan.loads
    ]
    stage = sum(block_bytes(block_of(load.operands[0].type)) for loads in plan.rings.values() for load in loads)
    return (limit - kept - max(passing) - 1024) // stage


def _bytes(kind: object) -> int:
    assert isinstance(kind, MemDescType)
    return math.prod(shape_of(kind)) * memory_bits(kind) // 8
