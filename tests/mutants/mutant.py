"""A mutant: a seed's kernel after changes that follow from two numbers, as a file that is compiled like any kernel."""

from __future__ import annotations

import ast
import difflib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from random import Random

from kernelpack.kernel.jit import JITFunction
from tests.mutants.mutate import mutate
from tests.mutants.seeds import SEEDS, Seed
from tests.mutants.sources import kernel_module


@dataclass(frozen=True)
class Mutant:
    """`before` and `after` are the module's text without and with the changes."""

    number: int
    seed: Seed
    kinds: tuple[str, ...]
    before: str
    after: str

    @staticmethod
    def of(campaign: int, number: int, draw: int = 0) -> Mutant:
        """Returns a draw of mutant `number` of a campaign."""
        random = Random(f"{campaign} {number} {draw}")
        seed = SEEDS[number % len(SEEDS)]
        original = kernel_module(seed.file, seed.kernel)
        before = ast.unparse(original) + "\n"
        while True:
            tree = ast.parse(before)
            kinds = mutate(tree, random)
            after = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
            if after != before:
                return Mutant(number, seed, tuple(kinds), before, after)

    def diff(self) -> str:
        """Returns what the changes did to the source."""
        lines = [text.splitlines() for text in (self.before, self.after)]
        return "\n".join(difflib.unified_diff(*lines, self.seed.name, f"mutant {self.number}: {', '.join(self.kinds)}", lineterm="", n=2))

    def load(self, folder: Path) -> tuple[JITFunction, Path]:
        """Writes the source to a file of its own and imports it. Returns the kernel, and the file."""
        path = folder / f"mutant_{self.number}.py"
        path.write_text(self.after)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        kernel = getattr(module, self.seed.kernel.rpartition(".")[2])
        assert isinstance(kernel, JITFunction)
        return kernel, path
