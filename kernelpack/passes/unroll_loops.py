"""unroll_loops: a loop that asks for it (tl.range(loop_unroll_factor=n)) does n trips in one, and what is left over in a loop after it."""

from __future__ import annotations

from kernelpack.ir.core import Block, Builder, Operation, Region, Value
from kernelpack.limits import check_operations

FACTOR, NUM_STAGES = "tt.loop_unroll_factor", "tt.num_stages"


def unroll_loops(module: Operation) -> None:
    """Unrolls in place, inner loops first; the attribute is gone afterwards."""
    for loop in reversed([op for op in module.walk() if op.name == "scf.for" and FACTOR in op.attributes]):
        factor = loop.attributes.pop(FACTOR)
        if factor > 1:
            size = sum(1 for op in loop.walk()) * factor
            check_operations(size, loop.location.source, f"unrolled {factor} times, this loop has")
            _unroll(loop, factor)


def _unroll(loop: Operation, factor: int) -> None:
    build = Builder.before(loop)
    build.location = loop.location
    lower, upper, step, *initial = loop.operands
    stride = build.value("arith.muli", [step, build.constant(factor, step.type)])
    # the length is taken as unsigned, so that none is too long; a loop that never runs has none
    runs = build.value("arith.cmpi", [lower, upper], {"predicate": "slt"})
    length = build.value("arith.subi", [upper, lower])
    rounds = build.value("arith.divui", [length, stride])
    covered = build.value("arith.muli", [rounds, stride])
    covered = build.value("arith.select", [runs, covered, build.constant(0, lower.type)])
    middle = build.value("arith.addi", [lower, covered])

    types = [value.type for value in initial]
    block = Block([lower.type, *types])
    for old, new in zip(loop.body.arguments, block.arguments, strict=True):
        new.name = old.name
    inside = Builder(block, location=loop.location)
    induction: Value = block.arguments[0]
    carried: list[Value] = list(block.arguments[1:])
    for trip in range(factor):
        if trip:
            induction = inside.value("arith.addi", [induction, step])
        mapping: dict[Value, Value] = dict(zip(loop.body.arguments, [induction, *carried], strict=True))
        for op in loop.body.operations[:-1]:
            block.append(op.clone(mapping))
        carried = [mapping.get(value, value) for value in loop.body.terminator.operands]
    inside.create("scf.yield", carried)
    unrolled = build.create("scf.for", [lower, middle, stride, *initial], loop.attributes, types, [Region([block])])
    for total, result in zip(loop.results, unrolled.results, strict=True):
        result.name = total.name

    loop.attributes[NUM_STAGES] = 1  # a few trips: loading ahead for them costs more than it saves
    for index, value in enumerate([middle, upper, step, *unrolled.results]):
        loop.set_operand(index, value)
