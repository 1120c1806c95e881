"""A mutant: a seed's kernel after changes that follow from two numbers, as a file that is compiled like any kernel."""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from kernelpack.kernel.jit import JITFunction
from tests.mutants.mutate import mutate
from tests.mutants.seeds import SEEDS, Seed
from tests.mutants.sources import kernel_module


@dataclass(frozen=True)
class Mutant:
    """`name` is of the file, `before` and `after` are its text without and with the changes. Arguments that are `salted` have extremes."""

    name: str
    number: int
    seed: Seed
    kinds: tuple[str, ...]
    before: str
    after: str
    salted: bool = False

    @staticmethod
    def of(campaign: int, number: int, draw: int = 0) -> Mutant:
        """Returns a draw of mutant `number` of a campaign."""
        random = Random(f"{campaign} {number} {draw}")
        seed = SEEDS[number % len(SEEDS)]
        before = kernel_module(seed.file, seed.kernel)
        while True:
            tree = ast.parse(before)
            kinds = mutate(tree, random)
            after = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
            if after != before:
                return Mutant(
                    f"mutant_{campaign}_{number}_{draw}",
                    number,
                    seed,
                    tuple(kinds),
                    before,
                    after,
                    number // len(SEEDS) % 3 == 2,
                )

    def diff(self) -> str:
        """Returns what the changes did to the source."""
        lines = [text.splitlines() for text in (self.before, self.after)]
        return "\n".join(
            difflib.unified_diff(*lines, self.seed.name, f"{self.name}: {', '.join(self.kinds)}", lineterm="", n=2)
        )

    def load(self, folder: Path) -> tuple[JITFunction, Path]:
        """Writes the source to a file of its own and runs it. Returns the kernel, and the file."""
        path = folder / f"{self.name}.py"
        path.write_text(self.after)
        defined: dict[str, Any] = {"__name__": self.name}
        exec(compile(self.after, path, "exec"), defined)
        kernel = defined[self.seed.kernel.rpartition(".")[2]]
        assert isinstance(kernel, JITFunction)
        return kernel, path
