"""ttir -> tile loops.

A planner plans, a review looks at the plan, and planning starts again with what was learned (a tile evaluated too often, a load that
would move past a store, a tile read across the lanes, a buffer overwritten too early) until nothing is left to learn.
"""

from __future__ import annotations

from kernelpack.backends.cpu.facts.features import Level
from kernelpack.backends.cpu.plan.feedback import Review
from kernelpack.backends.cpu.plan.plan_tiles import Knowledge, Planner
from kernelpack.backends.cpu.plan.tile_program import TileProgram
from kernelpack.ir.core import Operation, entry_function


def ttir_to_tiles(module: Operation, level: Level) -> TileProgram:
    """Returns the tile program of a module's kernel."""
    known = Knowledge()
    for _ in range(200):
        plan = Planner(entry_function(module), level, known)
        program = plan.run()
        if not Review(plan, program).run():
            return program
    raise AssertionError("planning does not settle")
