"""Which products of warpgroups may be in flight until a loop's next iteration, and what room for their tiles that takes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from kernelpack.backends.cuda.memory_layouts import memory_bits
from kernelpack.backends.cuda.passes.reload_operands import registers_of
from kernelpack.backends.cuda.roles import REGISTERS
from kernelpack.ir.core import Block, BlockArgument, Builder, Operation, Region, Value
from kernelpack.ir.types import I1, MemDescType, TensorType, Type, shape_of
from kernelpack.layout.encoding import layout_of
from kernelpack.layout.families import LANES

PRODUCT = "ttng.warp_group_dot"
WAIT = "ttng.warp_group_dot_wait"
OTHER_REGISTERS = 64
"""Registers of a thread for all but the sums of products: addresses, masks, what is on its way."""


def outlasts(product: Operation) -> bool:
    """Whether a product of a loop's body may end in the next iteration: its result is read there only.

    Rows in registers must not be written until then; they are not where they come from a product of the same iteration, for
    which that iteration waits first.
    """
    users = [user.name for user in product.result.users()]
    assert product.parent is not None
    in_registers = isinstance(product.operands[0].type, TensorType)
    return users == ["scf.yield"] and (
        not in_registers or any(op.name == PRODUCT for op in _needed_by(product.parent, product.operands[:1]))
    )


def _needed_by(body: Block, values: Iterable[Value]) -> set[Operation]:
    """Returns the operations of a block that values are computed from in the same iteration."""
    needed: set[Operation] = set()
    pending = list(values)
    while pending:
        op = pending.pop().defining_op
        if op is not None and op.parent is body and op not in needed:
            needed.add(op)
            pending += [operand for inner in op.walk() for operand in inner.operands]
    return needed


def deferrable(loop: Operation, loads: Collection[Operation]) -> list[Operation]:
    """Returns the products of warpgroups that may end an iteration later: the loop only sums them up, and nothing writes their
    operands meanwhile."""
    body = loop.body
    found = []
    for op in body.operations:
        if op.name == PRODUCT:
            total, uses = op.operands[2], op.result.uses
            if (
                isinstance(total, BlockArgument)
                and total.owner is body
                and len(total.uses) == 1
                and [(user.name, index) for user, index in uses] == [("scf.yield", total.index - 1)]
                and all(_lasts(operand, loop, loads) for operand in op.operands[:2])
            ):
                found.append(op)
    return found


def keep_in_flight(build: Builder, mapping: Mapping[Value, Value], deferred: Sequence[Operation]) -> None:
    """At the end of a new loop's body, lets its copies of deferred products run on; those of the iteration before are done."""
    for dot in deferred:
        product = mapping[dot.result].defining_op
        assert product is not None
        product.attributes["isAsync"] = True
    if deferred:
        build.create(WAIT, (), {"pendings": len(deferred)})


def await_products(build: Builder, results: Iterable[Value], products: Iterable[Operation]) -> list[Value]:
    """Waits for all products. Returns the results of a loop, of which those of `products`, that its old body yields, are done."""
    done = list(results)
    places = [product.result.uses[0][1] for product in products]
    waited = build.create(WAIT, [done[place] for place in places], {"pendings": 0})
    for place, value in zip(places, waited.results, strict=True):
        done[place] = value
    return done


def await_behind(loop: Operation, products: Sequence[Operation]) -> None:
    """Waits for products that are in flight behind a loop.

    The wait is only on the way out of an iteration: where accumulators meet those of no iteration, the assembler finds that they
    are written before the wait by something other than products, and waits for every product (messages C7514 and C7515).
    """
    if products:
        build = Builder(where_it_iterates(loop), location=loop.location)
        build.create("scf.yield", await_products(build, loop.results, products))


def where_it_iterates(loop: Operation) -> Block:
    """Puts a loop into a branch that is taken if there is an iteration, whose results take the place of the loop's. Returns the
    branch's block, which lacks its `scf.yield`."""
    build = Builder.before(loop)
    lower, upper, _, *initial = loop.operands
    iterates = build.value("arith.cmpi", [lower, upper], {"predicate": "slt"}, I1)
    then, otherwise = Block(), Block()
    types = [result.type for result in loop.results]
    whole = build.create("scf.if", [iterates], {}, types, [Region([then]), Region([otherwise])])
    for old, new in zip(loop.results, whole.results, strict=True):
        new.name = old.name
        old.replace_all_uses_with(new)
    Builder(otherwise, location=loop.location).create("scf.yield", initial)
    loop.detach()
    then.append(loop)
    return then


def has_lasting(loop: Operation, loads: Collection[Operation]) -> bool:
    """Whether products may end an iteration later, as their tiles allow."""
    products = [op for op in loop.body.operations if op.name == PRODUCT]
    tiles = [tile for op in products for tile in op.operands[:2] if isinstance(tile.type, MemDescType)]
    return any(map(outlasts, products)) and all(_lasts(tile, loop, loads) for tile in tiles)


def tile_source(tile: Value) -> Operation | None:
    """Returns what made a tile in shared memory, seen through transposed views."""
    op = tile.defining_op
    while op is not None and op.name == "ttg.memdesc_trans":
        op = op.operands[0].defining_op
    return op


def _lasts(operand: Value, loop: Operation, loads: Collection[Operation]) -> bool:
    """Whether an operand is a tile in shared memory that the next iteration does not write: one from before the loop, or one of
    several buffers that loads fill."""
    op = tile_source(operand)
    if op is None or op.name != "ttg.local_alloc":
        return False
    return loop not in op.ancestors() or (bool(op.operands) and op.operands[0].defining_op in loads)


def fit(
    loop: Operation, loads: Collection[Operation], ahead: int, lasting: bool, deferred: bool, limit: int
) -> tuple[int, int]:
    """Returns how many iterations tiles are loaded ahead, and for how many iterations more they last; `ahead` is what is asked for,
    `lasting` whether products would use the latter.

    Buffers for the latter must fit, and leave room for as many blocks on a multiprocessor as there would be without them. Where
    they do not, tiles are loaded one iteration less ahead; but two iterations hide the way to memory better than one does, and a
    second barrier lets `deferred` products do without.
    """
    tiles = sum(_bytes(load.result.type) for load in loads)
    replaced = {user for load in loads for user in load.result.users()}
    function = next(op for op in loop.ancestors() if op.name == "tt.func")
    others = sum(
        _bytes(op.result.type)
        for op in function.walk()
        if op.name == "ttg.local_alloc"
        and op not in replaced
        and (loop in op.ancestors() or any(loop in user.ancestors() for user in op.result.users()))
    )
    if not lasting:
        return ahead, 0
    needed = others + tiles * (ahead + 1)
    if needed + tiles <= limit and _blocks(loop, needed + tiles, limit) >= _blocks(loop, needed, limit):
        return ahead, 1
    return (ahead, 0) if ahead == 1 or (deferred and ahead == 2) else (ahead - 1, 1)


def _bytes(kind: Type) -> int:
    return math.prod(shape_of(kind)) * memory_bits(kind) // 8


def _blocks(loop: Operation, shared: int, limit: int) -> int:
    """Returns how many blocks fit on a multiprocessor, which has `limit` bytes of shared memory; each block takes 1 KB more.

    The registers of a thread are those of its sums, and again 64 for all else.
    """
    products = [op for op in loop.body.operations if op.name == PRODUCT]
    threads = layout_of(products[0].result).in_size("warp") * LANES
    registers = sum(registers_of(op.result) for op in products) + OTHER_REGISTERS
    return min(limit // (shared + 1024), REGISTERS // (threads * registers))
