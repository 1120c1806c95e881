"""Loads scalars again inside of a nest's loop over lanes, where it takes more of them than registers hold.

A scalar that is loaded before the loop becomes a vector there, which is spilled, and read back whole in each iteration. With AVX-512 instructions
take their lanes from one element in memory. A product of eight rows with quantised weights takes 80 scalars for 32 steps of k: 80 stores of a
vector less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kernelpack.backends.cpu.emit.elements import element_bytes, from_memory, memory_type
from kernelpack.backends.cpu.emit.places import Index, Uniform
from kernelpack.backends.cpu.facts.waiting import sees_changes
from kernelpack.backends.cpu.plan.fuse_nests import reach_of
from kernelpack.backends.cpu.plan.sinks import Atomic, Root, Store, operation_of
from kernelpack.backends.cpu.plan.tile_program import Dot, Nest, Scalar, Statement, TileProgram
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import Effect, Trait, definition, effects_of
from kernelpack.llvm.text import Val

if TYPE_CHECKING:
    from kernelpack.backends.cpu.emit.evaluate import Evaluator

_IN_REGISTERS = 28
"""So many scalars stay in vectors while a loop over lanes runs: AVX-512 has 32, and a formula needs some."""


def is_plain_load(op: Operation) -> bool:
    """Whether a scalar operation loads, without a mask, what does not change meanwhile."""
    return op.name == "tt.load" and len(op.operands) == 1 and not sees_changes(op)


def may_write(statement: Statement) -> bool:
    """Whether a statement may write where a scalar was loaded from. Control flow may."""
    match statement:
        case Nest():
            return any(isinstance(root, (Store, Atomic)) for root in statement.roots)
        case Scalar():
            return Effect.WRITE_GLOBAL in effects_of(statement.op)
        case Dot():
            return False
    return True


def reloads(nest: Nest, program: TileProgram, loaded: Mapping[Value, Val], features: frozenset[str]) -> Mapping[Value, Val]:
    """Returns which of the `loaded` scalars a nest's loops load again, with their addresses. Nothing was written there since."""
    if len(loaded) <= _IN_REGISTERS or "avx512" not in features or may_write(nest):
        return {}
    taken = {scalar for root in nest.roots for scalar in reach_of(root, program.plain).scalars}
    found = {scalar: address for scalar, address in loaded.items() if scalar in taken}
    return found if len(found) > _IN_REGISTERS else {}


def again(ev: Evaluator, scalar: Value, index: Index) -> Uniform | None:
    """Loads a scalar in the innermost loop of an index, if it is one of `ev.reloaded`. LLVM would move the load out of the loop if it knew that
    the address does not change."""
    em, loop = ev.em, max(index, key=lambda place: place.depth)
    if scalar not in ev.reloaded or loop.base is None:
        return None
    kind = scalar.type

    def load() -> Val:
        hidden = f'call i64 asm "", "=r,0,r"(i64 0, i64 {loop.base}) memory(none)'
        zero = ev.remember(("zero", loop.base), lambda: em.op("i64", hidden))
        return from_memory(em, em.load(memory_type(kind), em.offset(ev.reloaded[scalar], zero), element_bytes(kind)), kind)

    with em.into(ev.at(loop.depth)):
        return Uniform(ev.remember(("again", scalar, loop.base), load), loop.depth)


def evaluate_in_order(ev: Evaluator, roots: Sequence[Root], points: Sequence[Index]) -> None:
    """Evaluates what roots are made of in the order of the kernel. One root after the other would make chains of operations that wait for each
    other: LLVM keeps the order where it is short of registers."""
    reaches = [reach_of(root, ev.program.plain) for root in roots]
    ops = {value.defining_op for reach in reaches for value in reach.values - reach.elsewhere}
    for block in dict.fromkeys(op.parent for op in map(operation_of, roots) if op is not None):
        for op in block.operations if block is not None else ():
            if op in ops and (op.name == "tt.load" or Trait.ELEMENTWISE in definition(op.name).traits):
                for point in points:
                    ev.evaluate(op.result, point)
