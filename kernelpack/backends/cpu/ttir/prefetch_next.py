"""Prefetches what a loop reads the next time round, where a number that is read in the loop says where that lies.

Pages of a cache, or rows by their numbers, follow each other anyhow: no CPU foresees which. Loads that a kernel passes over once
(`evict_first`) are looked at, as what they read is in no cache yet. They then are as others: nothing else is asked for because of them.
"""

from __future__ import annotations

from kernelpack.analysis.loops import is_outside
from kernelpack.ir.core import Builder, Operation, Value
from kernelpack.ir.dialect import attribute, is_pure, operand
from kernelpack.ir.types import TensorType
from kernelpack.ir.views import For


def prefetch_next(module: Operation) -> Operation:
    """Rewrites a module in place and returns it."""
    for op in list(module.walk()):
        if op.name == "scf.for":
            _prefetch(op)
    return module


def _prefetch(loop: Operation) -> None:
    later: dict[Value, Value] = {}
    for load in list(loop.body.operations):
        if load.name != "tt.load" or attribute(load, "evict") != "evict_first":
            continue
        pointer = operand(load, "ptr")
        formula = _formula(pointer, loop)
        if formula is None or all(op.name != "tt.load" for op in formula):
            continue
        build = Builder.before(load)
        if not later:
            later[For.of(loop).induction] = _next_count(build, For.of(loop))
        for op in formula:
            if op.result not in later:
                build.insert(op.clone(later))
        build.create("cpu.prefetch", [later[pointer]])
        del load.attributes["evict"]


def _next_count(build: Builder, loop: For) -> Value:
    """Returns what the loop counts next, or now where it ends: what an iteration reads may be read."""
    left = build.value("arith.subi", [loop.upper, loop.induction])
    more = build.value("arith.cmpi", [loop.step, left], {"predicate": "slt"})
    following = build.value("arith.addi", [loop.induction, loop.step])
    return build.value("arith.select", [more, following, loop.induction])


def _formula(pointer: Value, loop: Operation) -> list[Operation] | None:
    """Returns the operations of a loop's body that compute pointers from what it counts, in their order; None where there are others:
    what it carries, what has regions, and loads but of numbers whose own addresses need no load."""
    found: set[Operation] = set()
    waiting, seen = [(pointer, False)], set[tuple[Value, bool]]()
    while waiting:
        value, loaded = waiting.pop()
        if (value, loaded) in seen:
            continue
        seen.add((value, loaded))
        op = value.defining_op
        if value is For.of(loop).induction or is_outside(value, loop):
            continue
        if op is None:
            return None
        is_number = op.name == "tt.load" and not isinstance(op.result.type, TensorType) and not attribute(op, "is_volatile")
        if op.regions or not (is_pure(op) or (is_number and not loaded)):
            return None
        found.add(op)
        waiting += [(operand, loaded or is_number) for operand in op.operands]
    return [op for op in loop.body.operations if op in found]
