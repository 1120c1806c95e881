"""ttir -> tile loops.

A planner plans, a review looks at the plan, and planning starts again with what was learned (a tile evaluated too often, a load that
would move past a store, a tile read across the lanes, a buffer overwritten too early) until nothing is left to learn. Then loops
begin at zero where they can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernelpack.backends.cpu.facts.features import Level
from kernelpack.backends.cpu.plan.feedback import LESSONS, Lessons, learn
from kernelpack.backends.cpu.plan.plan_tiles import Knowledge, Planner
from kernelpack.backends.cpu.plan.tile_program import TileProgram
from kernelpack.backends.cpu.plan.zero_starts import start_from_zero
from kernelpack.ir.core import Operation, entry_function

_ROUNDS = 200
"""After so many, planning is taken never to settle."""


@dataclass(frozen=True)
class Round:
    """A plan, the names of the lessons that its review learned, and what is known since (for the next round)."""

    program: TileProgram
    learned: list[str]
    known: Knowledge


def rounds(module: Operation, level: Level, lessons: Lessons = LESSONS) -> Iterator[Round]:
    """Yields the plans for a module's kernel, up to one that teaches nothing."""
    known = Knowledge()
    for _ in range(_ROUNDS):
        plan = Planner(entry_function(module), level, known)
        program = plan.run()
        learned = learn(plan, program, lessons)
        yield Round(program, learned, known)
        if not learned:
            return


def ttir_to_tiles(module: Operation, level: Level) -> TileProgram:
    """Returns the tile program of a module's kernel."""
    for made in rounds(module, level):
        if not made.learned:
            start_from_zero(made.program.statements, level)
            return made.program
    raise AssertionError("planning does not settle")
