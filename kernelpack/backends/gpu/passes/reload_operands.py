"""Leaves a dot's loop-invariant operand in shared memory where registers are short: it is read again in every iteration."""

from __future__ import annotations

from kernelpack.backends.gpu.facts.registers import registers_of
from kernelpack.backends.gpu.machine import Machine
from kernelpack.ir.core import Builder, Operation
from kernelpack.ir.dialect import operand, replace_operand
from kernelpack.ir.types import TensorType, is_pointer
from kernelpack.ir.views import factors

MOST_HELD = 128
"""Registers of a thread that one operand takes, from which on it is read again: half of those that a thread can have."""


def reload_operands(function: Operation, machine: Machine) -> None:
    """Rewrites a ttgir function in place."""
    for loop in function.walk():
        if loop.name == "scf.for":
            dots = [op for op in loop.body.operations if op.name == "tt.dot"]
            held = _registers(loop, dots, machine)
            for dot in dots:
                for name in ("a", "b"):
                    tile = operand(dot, name)
                    load = tile.defining_op
                    short = held > machine.tile_registers or registers_of(tile) >= MOST_HELD
                    if short and load is not None and _is_invariant_load(load, loop):
                        held -= registers_of(tile)
                        replace_operand(dot, name, Builder.before(dot).insert(load.clone({})).result)


def _is_invariant_load(op: Operation, loop: Operation) -> bool:
    """Whether an operation reads a buffer that is written where it is made, before the loop, and never again."""
    buffer = operand(op, "src").defining_op if op.name == "ttg.local_load" else None
    return buffer is not None and buffer.name == "ttg.local_alloc" and bool(buffer.operands) and loop not in op.ancestors()


def _registers(loop: Operation, dots: list[Operation], machine: Machine) -> int:
    """Returns how many registers a thread needs for the tiles that live through the loop, and for the dots' results.

    A dot's result that is carried takes the carried value's registers.
    """
    # of a tile of pointers, a thread keeps one for each vector, not one for each element: they count as addresses
    carried = [value for value in loop.body.arguments if isinstance(value.type, TensorType) and not is_pointer(value.type)]
    passed = set(loop.body.terminator.operands)
    tiles = [
        tile
        for dot in dots
        for tile in factors(dot) * (2 if machine.splits_operands(dot) else 1)
        if tile.defining_op not in loop.body.operations
    ]
    results = [dot.result for dot in dots if dot.result not in passed]
    return sum(map(registers_of, [*carried, *tiles, *results]))
