"""Runs the cases, in vLLM's environment, and prints a table: python -m tests.engines.vllm.kernels [WORD ...] [--page FILE]"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from kernelpack import knobs
from tests.engines.cases import Outcome
from tests.engines.table import Table, figures, main
from tests.engines.vllm.kernels.platform import take_triton_kernels

ROOMS = ("attention", "products", "recurrent", "rows")


class Compiled(Counter[str]):
    """How many variants of each kernel were compiled. Kernels of several modules have the same name."""

    def note(self, *, fn: Any, **_: Any) -> None:
        self[f"{fn.module}.{fn.name}"] += 1

    def summary(self, outcomes: Sequence[Outcome]) -> str:
        missed = sum(not outcome.good for outcome in outcomes)
        agree = f"{missed} cases do not agree" if missed else "all agree"
        return f"{self.total()} variants of {len(self)} kernels; {agree}"


def row(outcome: Outcome) -> tuple[str, ...]:
    return outcome.case.name, outcome.case.about, *figures(outcome)


HEAD = ("case", "shape", "kernels", "distance", "allowed")

if __name__ == "__main__":
    take_triton_kernels()
    for name in ROOMS:  # they add their cases
        import_module(f"tests.engines.vllm.kernels.{name}")
    compiled = Compiled()
    knobs.runtime.jit_post_compile_hook = compiled.note
    main(Table("kernels", HEAD, row, compiled.summary))
