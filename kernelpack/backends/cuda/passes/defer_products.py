"""Lets products of warpgroups run on while others are issued: each is waited for where its result is first read.

    for i:                                     for i:
        s = dot q, k[i]                            s = dot q, k[i]              in flight while copies are issued
        p = f(s)                          =>       wait for s
        acc = g(acc, s)                            p = f(s)
        acc = dot p, v[i], acc                     wait for acc: done, it was issued before s
                                                   acc = g(acc, s)
                                                   acc = dot p, v[i], acc       in flight while the next iteration starts
                                               wait for acc

Attention is such a loop. Sums that nothing reads but their own product are pipeline_loops' matter. A product that outlasts its
iteration reads its tile for an iteration longer: pipeline_loops gives such loops one buffer more (products_in_flight tells it where).
"""

from __future__ import annotations

from kernelpack.backends.cuda.products_in_flight import PRODUCT, WAIT, await_behind, outlasts, tile_source
from kernelpack.ir.core import Block, Builder, Operation, Value
from kernelpack.ir.types import MemDescType


def defer_products(function: Operation) -> None:
    """Rewrites a ttgir function in place, after loads were pipelined."""
    for loop in list(function.walk()):
        if loop.name != "scf.for":
            continue
        products = [op for op in loop.body.operations if op.name == PRODUCT]
        if not products or any(op.attributes.get("isAsync") for op in products) or not _has_room(loop, products):
            continue
        carried = [product for product in products if outlasts(product)]
        for product in products:
            if product in carried:
                _wait_in_next_iteration(loop, product)
            elif product.result.uses:
                _wait_in_this_iteration(product)
        for product in products:
            product.attributes["isAsync"] = True
        await_behind(loop, carried)


def _has_room(loop: Operation, products: list[Operation]) -> bool:
    """Whether all products of a loop read tiles that the next iteration does not write: buffers from before the loop, or rings
    in which tiles last for an iteration more than they are loaded ahead."""
    waits = [op for op in loop.body.operations if op.name == "ttg.async_wait"]
    if len(waits) != 1:
        return False
    slots = waits[0].attributes["num"] + 3
    return all(_lasts(tile, loop, slots) for op in products for tile in op.operands[:2] if isinstance(tile.type, MemDescType))


def _lasts(tile: Value, loop: Operation, slots: int) -> bool:
    op = tile_source(tile)
    if op is not None and op.name == "ttg.memdesc_index":
        ring = op.operands[0]
        assert isinstance(ring.type, MemDescType)
        return ring.type.shape[0] >= slots and ring.defining_op is not None and loop not in ring.defining_op.ancestors()
    return op is not None and op.name == "ttg.local_alloc" and loop not in op.ancestors()


def _first_user(value: Value, block: Block) -> Operation:
    """Returns the first operation of a block that reads a value, itself or in what is nested in it."""
    outer = {next(op for op in (user, *user.ancestors()) if op.parent is block) for user in value.users()}
    return next(op for op in block.operations if op in outer)


def _wait_in_this_iteration(product: Operation) -> None:
    assert product.parent is not None
    operations = product.parent.operations
    user = _first_user(product.result, product.parent)
    _wait(product.result, user, operations[operations.index(product) + 1 : operations.index(user)])


def _wait_in_next_iteration(loop: Operation, product: Operation) -> None:
    """Waits where the value that the loop carries the result in is first read."""
    total = loop.body.arguments[product.result.uses[0][1] + 1]
    if total.uses:
        operations = loop.body.operations
        user = _first_user(total, loop.body)
        _wait(total, user, operations[operations.index(product) + 1 :] + operations[: operations.index(user)])


def _wait(value: Value, user: Operation, between: list[Operation]) -> None:
    """Waits for a value in front of its first user; products issued `between` may stay in flight."""
    pendings = sum(op.name == PRODUCT for op in between)
    wait = Builder.before(user).create(WAIT, [value], {"pendings": pendings})
    _replace_uses(value, wait.result, wait)


def _replace_uses(old: Value, new: Value, wait: Operation) -> None:
    for user, index in list(old.uses):
        if user is not wait:
            user.set_operand(index, new)
