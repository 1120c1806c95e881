"""Decides which loads of a kernel a warp of its own does, ahead of the products that read them; rewrite_roles then gives them to it.

A load qualifies if nothing but products of its block reads its tile, if the loops and branches around it and its coordinates follow
from what one warp can compute by itself, and if nothing that comes before it can write what it reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from kernelpack.analysis.address_sources import AddressSources
from kernelpack.backends.cuda.machine.block_copies import block_accessed, buffer_type
from kernelpack.backends.cuda.machine.dialect import PRODUCT, WAIT
from kernelpack.backends.cuda.machine.roles import WARPGROUP, roles_of
from kernelpack.backends.cuda.machine.shared_uses import MAKE_MAP
from kernelpack.backends.cuda.schedule.budget import Budget
from kernelpack.backends.cuda.schedule.loop_schedule import NONE, Copy, Group, Products, RoleSchedule, Wait
from kernelpack.backends.cuda.schedule.overlap_products import summed_products
from kernelpack.backends.cuda.schedule.run_ahead import NUM_STAGES, address_of, argument_names
from kernelpack.ir.core import Block, Operation, Value
from kernelpack.ir.dialect import Effect, effects_of, is_pure, operand
from kernelpack.ir.dialects.descriptors import LOAD, STORE
from kernelpack.ir.types import MemDescType, TensorType
from kernelpack.ir.views import For, If, slots

MOST_WARPS = 32
ASKED = "tt.warp_specialize"
"""The attribute of a loop whose loads, and those of loops in it, are to have a warp of their own."""
_AROUND = ("scf.for", "scf.if")
_COUNTED = (PRODUCT, WAIT)
_ORDERED = frozenset({Effect.WRITE_GLOBAL, Effect.SYNCHRONISE, Effect.OTHER})


def schedule_roles(
    function: Operation,
    num_warps: int,
    num_stages: int,
    bases: Mapping[Value, str],
    shared_bytes: int,
    rotated: Mapping[Operation, Products] = MappingProxyType({}),
) -> RoleSchedule | None:
    """Returns what a warp of its own copies in a ttgir kernel; None where it should not or cannot.

    Rings have `num_stages` slots, or what a loop asks for, or as many as fit into `shared_bytes`. `bases` names the tensors of
    arguments that are descriptors, `rotated` what products of rotated loops do.
    """
    if num_warps % WARPGROUP or num_warps + WARPGROUP > MOST_WARPS or roles_of(function):
        return None
    # a function of its own waits for all warps of the block, and so does a tensor map that the kernel makes for its first one
    if any(op.name in ("tt.call", MAKE_MAP) for op in function.walk()):
        return None
    found = _copies(function, bases, num_warps, rotated)
    if not found.groups:
        return None
    asked = max((int(op.attributes.get(NUM_STAGES, 0)) for op in found.around), default=0)
    budget = Budget(function, shared_bytes)
    slots = min(asked or num_stages, budget.slots_of_kernel(found.loads, found.rings.values()))
    return replace(found, slots=slots, registers=budget.registers_of_roles(1, num_warps)) if slots > 1 else None


def _copies(
    function: Operation, bases: Mapping[Value, str], num_warps: int, rotated: Mapping[Operation, Products]
) -> RoleSchedule:
    """Returns the groups of loads that a warp of its own can and should do."""
    products = dict(rotated)
    groups = list(_groups(function, products))
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
    run_on = {loop: found for loop, found in products.items() if found and loop in around}
    return RoleSchedule(tuple(groups), around, scalars, run_on)


def _is_chain(loop: Operation) -> bool:
    """Whether a loop multiplies what it has computed from a product."""
    return any(op.name == PRODUCT and isinstance(operand(op, "a").type, TensorType) for op in loop.body.operations)


def _shares_ring(group: Group, groups: Iterable[Group]) -> bool:
    """Whether the loop of a group fills the same ring for others, too."""
    loop = group.loads[0].parent_op
    assert loop is not None
    return any(other is not group and other.key == group.key and loop in other.loads[0].ancestors() for other in groups)


def _loops_around(group: Group) -> list[Operation]:
    return [op for op in group.loads[0].ancestors() if op.name == "scf.for"]


def _groups(function: Operation, products: dict[Operation, Products]) -> Iterable[Group]:
    """Yields the loads that nothing but products of the same block reads; says what products of their loops do, which are not rotated."""
    by_block: dict[Block, list[Operation]] = {}
    for op in function.walk():
        if op.name == LOAD and op.parent is not None and _products(op):
            by_block.setdefault(op.parent, []).append(op)
    for block, loads in by_block.items():
        loop = loads[0].parent_op
        assert loop is not None
        if loop.name == "scf.for":
            products.setdefault(loop, summed_products(loop, loads))
        run_on = products.get(loop, NONE)
        together: dict[tuple[Operation, ...], list[Operation]] = {}
        for load in loads:
            together.setdefault(tuple(_products(load)), []).append(load)
        for readers, members in together.items():
            done = _done(block, readers, run_on)
            if done is not None or any(product in run_on.summed for product in readers):
                copies = tuple(Copy(load, buffer_type(block_accessed(load))) for load in members)
                yield Group(copies, done)


def _products(load: Operation) -> list[Operation]:
    """Returns the products that read a load's tile; none where anything else reads it too, or its author says when it is done."""
    kind, found = buffer_type(block_accessed(load)), []
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
        elif user.name == PRODUCT and user.parent is load.parent and not user.attributes.get("isAsync"):
            found.append(user)
        else:
            return []
    assert load.parent is not None
    return [op for op in load.parent.operations if op in found]


def _done(block: Block, readers: Sequence[Operation], run_on: Products) -> Operation | Wait | None:
    """Returns what products of a block are done after; None where they may be in flight at its end."""
    last = readers[-1]
    if last not in run_on.awaited:
        return None if any(product in run_on.summed for product in readers) else last
    place = block.index(last)
    for wait in run_on.waits:
        until = block.index(wait.before)
        issued = sum(op.name == PRODUCT for op in block.operations[place + 1 : until])
        if until > place and wait.pendings <= issued:
            return wait
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
        needed += For(op).bounds if op.name == "scf.for" else [If(op).condition]
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
    read = {bases.get(operand(load, "desc")) for load in group.loads}
    for number, op in enumerate(everything):
        if op.regions or op.name in _COUNTED or not _ORDERED & effects_of(op) or op is function:
            continue
        if number > last and loops.isdisjoint(op.ancestors()):
            continue
        written = argument_names(address_of(op), sources, bases) if op.name in ("tt.store", STORE) else None
        if written is None or None in read or not written.isdisjoint(read):
            return False
    return True
