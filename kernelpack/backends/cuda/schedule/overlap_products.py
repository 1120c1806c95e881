"""Decides which products of warpgroups run on while others are issued, and where each is waited for: where its result is first read.

    for i:                                     for i:
        s = dot q, k[i]                            s = dot q, k[i]              in flight while copies are issued
        p = f(s)                          =>       wait for s
        acc = g(acc, s)                            p = f(s)
        acc = dot p, v[i], acc                     wait for acc: done, it was issued before s
                                                   acc = g(acc, s)
                                                   acc = dot p, v[i], acc       in flight while the next iteration starts
                                               wait for acc

Attention is such a loop. A product that outlasts its iteration reads its tile for an iteration longer, so such loops have one buffer
more. Of a loop that only sums up, all products end together, before the next iteration's copies.

Warpgroups may then drift apart (Arrival.TURNS), so that one computes while another one multiplies:

    for i:                                          copies of tile 0 done; announce turn 0
        copies of tile i done; barrier              for i:
        s = dot q, k[i]                                 wait for turn i: everybody's copies of tile i are done
        copy tile i+S                         =>        s = dot q, k[i]
        wait for s                                      copy tile i+S
        p = f(s)                                        wait for s; copies of tile i+1 done; announce turn i+1
        acc = dot p, v[i], acc                          p = f(s)
                                                        acc = dot p, v[i], acc
                                                    wait for turn n; barrier

A barrier would hold up the first warpgroup at tile i+1 until the last one has come there too; an announcement in the middle of the
iteration lets it go on while the others still compute p. It says also that the warpgroup reads tile i-1 no more: the product that
did was issued before s. Tile i+S goes where tile i-1 was or an earlier one (copies marked `free`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from kernelpack.analysis.loops import needed_by
from kernelpack.backends.cuda.machine.dialect import PRODUCT, WAIT
from kernelpack.backends.cuda.machine.roles import roles_of
from kernelpack.backends.cuda.machine.warpgroup import WARPS
from kernelpack.backends.cuda.schedule.loop_schedule import LoopSchedule, Products, Wait
from kernelpack.backends.gpu.facts.scratch import ATOMICS
from kernelpack.ir.core import Block, BlockArgument, Operation, Value
from kernelpack.ir.dialect import Effect, effects_of, operand, optional_operand
from kernelpack.ir.types import MemDescType, TensorType
from kernelpack.layout.encoding import layout_of

MOST_GROUPS = 4
"""A block has 16 barriers (PTX ISA, barrier.cta); each warpgroup takes two of the upper eight."""


def summed_products(loop: Operation, loads: Collection[Operation]) -> Products:
    """Returns the products of warpgroups that may end an iteration later: the loop only sums them up, and nothing writes their
    operands meanwhile."""
    body = loop.body
    found = []
    for op in body.operations:
        if op.name == PRODUCT:
            a, b, total = op.operands
            uses = op.result.uses
            if (
                isinstance(total, BlockArgument)
                and total.owner is body
                and len(total.uses) == 1
                and [(user.name, index) for user, index in uses] == [("scf.yield", total.index - 1)]
                and _lasts(a, loop, loads)
                and _lasts(b, loop, loads)
            ):
                found.append(op)
    return Products(summed=found)


def has_lasting(loop: Operation, loads: Collection[Operation]) -> bool:
    """Whether products may end an iteration later, as their tiles allow."""
    products = products_of(loop)
    return any(map(_outlasts, products)) and all(_lasts(tile, loop, loads) for tile in _tiles(products))


def overlapping_products(schedule: LoopSchedule) -> Products:
    """Returns which products of a loop run on until their results are read. It is none where some are only summed up, where their
    tiles are written in the next iteration, and where the kernel's author wrote products that run on, and their waits."""
    loop, products = schedule.loop, products_of(schedule.loop)
    if not products or schedule.products or any(op.attributes.get("isAsync") for op in products):
        return schedule.products
    if not all(_stays(tile, schedule) for tile in _tiles(products)):
        return schedule.products
    return awaited_products(loop, products, [product for product in products if _outlasts(product)])


def products_over_copies(schedule: LoopSchedule) -> Products:
    """Returns which products of a loop run on while its copies are issued. It is none where a tile is not one of a ring, and where a
    result is not read in its iteration: what is summed up is waited for at the end, and copies had better start before."""
    products = products_of(schedule.loop)
    sources = [_tile_source(tile) for tile in _tiles(products)]
    if (
        len(sources) != 2 * len(products)
        or any(op is None or not is_in_ring(op, schedule) for op in sources)
        or any(op.attributes.get("isAsync") or _outlasts(op) for op in products)
    ):
        return Products()
    return awaited_products(schedule.loop, products)


def awaited_products(
    loop: Operation, products: Sequence[Operation], outlasting: Sequence[Operation] = (), late: Sequence[Operation] = ()
) -> Products:
    """Lets products of a loop run on until their results are read: those of `outlasting` in the next iteration."""
    waits = [
        _wait_in_next_iteration(loop, product) if product in outlasting else _wait_in_this_iteration(product)
        for product in products
    ]
    order = {op: number for number, op in enumerate(loop.body.operations)}
    return Products(
        awaited=products,
        outlasting=outlasting,
        waits=sorted((wait for wait in waits if wait is not None), key=lambda wait: order[wait.before]),
        late=late,
    )


def products_of(loop: Operation) -> list[Operation]:
    """Returns the products of warpgroups of a loop's body, in order."""
    return [op for op in loop.body.operations if op.name == PRODUCT]


def _tiles(products: Iterable[Operation]) -> list[Value]:
    """Returns the operands of products that lie in shared memory."""
    operands = [operand(product, name) for product in products for name in ("a", "b")]
    return [tile for tile in operands if isinstance(tile.type, MemDescType)]


def _outlasts(product: Operation) -> bool:
    """Whether a product of a loop's body may end in the next iteration: its result is read there only.

    Rows in registers must not be written until then; they are not where they come from a product of the same iteration, for
    which that iteration waits first.
    """
    users = [user.name for user in product.result.users()]
    assert product.parent is not None
    rows = operand(product, "a")
    in_registers = isinstance(rows.type, TensorType)
    return users == ["scf.yield"] and (not in_registers or any(op.name == PRODUCT for op in needed_by(product.parent, [rows])))


def _tile_source(tile: Value) -> Operation | None:
    """Returns what made a tile in shared memory, seen through transposed views."""
    op = tile.defining_op
    while op is not None and op.name == "ttg.memdesc_trans":
        op = op.operand.defining_op
    return op


def _lasts(operand: Value, loop: Operation, loads: Collection[Operation]) -> bool:
    """Whether an operand is a tile in shared memory that the next iteration need not write: one from before the loop, or one that
    loads fill."""
    op = _tile_source(operand)
    if op is None or op.name != "ttg.local_alloc":
        return False
    return loop not in op.ancestors() or copied_from(op) in loads


def _stays(tile: Value, schedule: LoopSchedule) -> bool:
    """Whether the next iteration does not write a tile: a buffer from before the loop, or one of a ring that has one to spare."""
    op = _tile_source(tile)
    if op is None or op.name != "ttg.local_alloc":
        return False
    return schedule.loop not in op.ancestors() or (schedule.lag > 0 and is_in_ring(op, schedule))


def copied_from(op: Operation) -> Operation | None:
    """Returns what made the tile that an operation copies to a new buffer; None for other operations."""
    tile = optional_operand(op, "src") if op.name == "ttg.local_alloc" else None
    return None if tile is None else tile.defining_op


def is_in_ring(buffer: Operation, schedule: LoopSchedule) -> bool:
    """Whether a buffer of the loop's body only holds what a ring holds already."""
    source = copied_from(buffer)
    kind = buffer.result.type
    assert isinstance(kind, MemDescType)
    return any(copy.load is source and copy.tile.encoding == kind.encoding for copy in schedule.copies)


# ---- where products are waited for ----


def _first_user(value: Value, block: Block) -> Operation:
    """Returns the first operation of a block that reads a value, itself or in what is nested in it."""
    outer = {user.within(block) for user in value.users()}
    return next(op for op in block.operations if op in outer)


def _wait_in_this_iteration(product: Operation) -> Wait | None:
    assert product.parent is not None
    if not product.result.uses:
        return None
    operations = product.parent.operations
    user = _first_user(product.result, product.parent)
    return _wait(product, product.result, user, operations[operations.index(product) + 1 : operations.index(user)])


def _wait_in_next_iteration(loop: Operation, product: Operation) -> Wait | None:
    """Waits where the value that the loop carries the result in is first read."""
    total = loop.body.arguments[product.result.uses[0][1] + 1]
    if not total.uses:
        return None
    operations = loop.body.operations
    user = _first_user(total, loop.body)
    return _wait(product, total, user, operations[operations.index(product) + 1 :] + operations[: operations.index(user)])


def _wait(product: Operation, value: Value, user: Operation, between: Sequence[Operation]) -> Wait:
    """Waits for a value in front of its first user; products issued `between` may stay in flight."""
    return Wait(product, value, user, sum(op.name == PRODUCT for op in between))


# ---- turns ----


def can_take_turns(schedule: LoopSchedule) -> bool:
    """Whether warpgroups can take turns in a loop instead of meeting, and it helps."""
    loop, products = schedule.loop, schedule.products
    if schedule.lag == 0 or schedule.ahead < 2 or len(products.awaited) < 2 or roles_of(_function(loop)):
        return False
    branches = bool(products.outlasting) or (loop.parent_op is not None and loop.parent_op.name == "scf.if")
    groups = layout_of(products.awaited[0].result).in_size("warp") // WARPS
    replaced = _replaced(schedule)
    if not branches or not 2 <= groups <= MOST_GROUPS or replaced is None:
        return False
    if any(_lets_warps_meet(op) for op in loop.body.operations[:-1] if op not in replaced):
        return False
    return bool(products.waits) and products.waits[0].value is products.awaited[0].result


def _function(loop: Operation) -> Operation:
    return next(op for op in loop.ancestors() if op.name == "tt.func")


def _replaced(schedule: LoopSchedule) -> set[Operation] | None:
    """Returns the loads of a loop and the buffers that its rings replace; None where a load's tile is needed in registers too."""
    users = [user for load in schedule.loads for user in load.result.users()]
    if not all(user.name == "ttg.local_alloc" and is_in_ring(user, schedule) for user in users):
        return None
    return {*schedule.loads, *users}


def _lets_warps_meet(op: Operation) -> bool:
    """Whether an operation of a loop uses shared memory, or orders accesses to it, beside its products."""
    touches = {Effect.READ_SHARED, Effect.WRITE_SHARED, Effect.SYNCHRONISE, Effect.OTHER} & effects_of(op)
    return (bool(touches) and op.name not in (PRODUCT, WAIT)) or _exchanges(op)


def _exchanges(op: Operation) -> bool:
    """Whether an operation uses shared memory of its own."""
    return op.name in ("tt.scan", "tt.gather", "tt.histogram", "tt.call", *ATOMICS) or (
        op.name == "scf.for" and any(map(_exchanges, op.body.operations))
    )
