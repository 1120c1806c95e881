"""Lets warpgroups drift apart in loops of products and arithmetic, so that one computes while another one multiplies.

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

from kernelpack.backends.cuda.roles import roles_of
from kernelpack.backends.cuda.scratch import ATOMICS
from kernelpack.backends.cuda.warpgroup import WARPS
from kernelpack.ir.core import Block, Builder, Operation, Region, Value
from kernelpack.ir.dialect import Effect, effects_of
from kernelpack.ir.types import I32
from kernelpack.layout.encoding import layout_of

PRODUCT, WAIT, COPY, ARRIVE = (
    "ttng.warp_group_dot",
    "ttng.warp_group_dot_wait",
    "ttg.async_copy_global_to_local",
    "ttg.async_wait",
)
_KNOWN = frozenset({PRODUCT, WAIT, COPY, ARRIVE, "ttg.async_commit_group", "gpu.barrier"})
MOST_GROUPS = 4
"""A block has 16 barriers (PTX ISA, barrier.cta); each warpgroup takes two of the upper eight."""


def stagger_warpgroups(function: Operation) -> None:
    """Rewrites a ttgir function in place, after defer_products."""
    if roles_of(function):
        return
    for loop in list(function.walk()):
        if loop.name == "scf.for" and (wait := _first_wait(loop)) is not None:
            _stagger(loop, wait)


def _first_wait(loop: Operation) -> Operation | None:
    """Returns where a loop waits for its first product; None where warpgroups cannot or need not drift apart in it."""
    body = loop.body
    tops = [op.name for op in body.operations[:2]]
    products = [op for op in body.operations if op.name == PRODUCT]
    if tops != [ARRIVE, "gpu.barrier"] or len(products) < 2 or loop.parent_op is None or loop.parent_op.name != "scf.if":
        return None
    groups = layout_of(products[0].result).in_size("warp") // WARPS
    if not 2 <= groups <= MOST_GROUPS or body.operations[0].attributes["num"] < 1:
        return None
    for op in body.operations[2:-1]:
        touches = {Effect.READ_SHARED, Effect.WRITE_SHARED, Effect.SYNCHRONISE, Effect.OTHER} & effects_of(op)
        if (touches and op.name not in _KNOWN) or op.name in (ARRIVE, "gpu.barrier") or _exchanges(op):
            return None  # warps meet for other reasons
        if op.name == COPY and not op.attributes.get("free"):
            return None
    waits = [op for op in body.operations if op.name == WAIT]
    return waits[0] if waits and waits[0].operands[:1] == [products[0].result] else None


def _exchanges(op: Operation) -> bool:
    """Whether an operation uses shared memory of its own."""
    return op.name in ("tt.scan", "tt.gather", "tt.histogram", "tt.call", *ATOMICS) or (
        op.name == "scf.for" and any(map(_exchanges, op.body.operations))
    )


def _stagger(loop: Operation, first_wait: Operation) -> None:
    old = loop.body
    num = old.operations[0].attributes["num"]
    before = Builder.before(loop)
    zero, one = before.constant(0, I32), before.constant(1, I32)
    before.create(ARRIVE, (), {"num": num, "early": True})
    before.create("ttng.arrive_turn", [zero])
    block = Block([argument.type for argument in old.arguments], [argument.name for argument in old.arguments])
    turn = block.add_argument(I32, "turn")
    mapping: dict[Value, Value] = dict(zip(old.arguments, block.arguments, strict=False))
    build = Builder(block, location=loop.location)
    build.create("ttng.wait_turn", [turn])
    following = build.value("arith.xori", [turn, one])
    for op in old.operations[2:-1]:
        build.insert(op.clone(mapping))
        if op is first_wait:
            build.create(ARRIVE, (), {"num": num, "early": True})
            build.create("ttng.arrive_turn", [following])
    build.create("scf.yield", [*(mapping.get(value, value) for value in old.terminator.operands), following])
    operands = [*loop.operands, zero]
    types = [value.type for value in operands[3:]]
    new = before.create("scf.for", operands, loop.attributes, types, [Region([block])])
    before.create("ttng.wait_turn", [new.results[-1]])
    before.create("gpu.barrier")  # another loop's turns begin behind the last one of this
    for result, other in zip(loop.results, new.results, strict=False):
        other.name = result.name
        result.replace_all_uses_with(other)
    loop.drop()
