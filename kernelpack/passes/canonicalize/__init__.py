"""canonicalize: constants are folded, and everything is brought into its simplest form. Never changes a result's bits.

Floats keep IEEE meaning: nothing is reassociated, and NaN, infinities and the sign of zero are respected.
"""

from __future__ import annotations

from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import Trait, definition
from kernelpack.ir.interpret.elementwise import ELEMENTWISE
from kernelpack.ir.rewrite import Pattern, folds, rewrite
from kernelpack.passes.canonicalize import arithmetic, control_flow, memory, tiles

__all__ = ["PATTERNS", "canonicalize"]


def _collect() -> dict[str, list[Pattern]]:
    """Returns the patterns of every operation: first those that hold for all elementwise operations, then its own."""
    patterns: dict[str, list[Pattern]] = {}
    for name in ELEMENTWISE:
        patterns[name] = [folds(arithmetic.fold_constants), folds(tiles.lift_splats)]
        if Trait.COMMUTATIVE in definition(name).traits:
            patterns[name].append(folds(arithmetic.constant_to_the_right))
    for table in (arithmetic.FOLDS, tiles.FOLDS, memory.FOLDS):
        for name, found in table.items():
            patterns.setdefault(name, []).extend(folds(fold) for fold in found)
    for table_of_patterns in (tiles.PATTERNS, memory.PATTERNS, control_flow.PATTERNS):
        for name, more in table_of_patterns.items():
            patterns.setdefault(name, []).extend(more)
    return patterns


PATTERNS = _collect()


def canonicalize(module: Operation) -> None:
    """Simplifies a module in place until nothing changes."""
    rewrite(module, PATTERNS)
