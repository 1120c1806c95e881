"""Runs the checks, in the packages' environment, and prints a table: python -m tests.engines.packages.checks [WORD ...] [--page FILE]"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version

from tests.engines.cases import Outcome
from tests.engines.table import Table, figures, main

ROOMS = ("liger", "models", "bitsandbytes_kernels", "fla_ops", "mamba", "torchao_kernels")


def row(outcome: Outcome) -> tuple[str, ...]:
    package = outcome.case.name
    agrees = "yes" if outcome.good else f"no {outcome.error}".strip()
    return f"{package} {version(package)}", outcome.case.about, *figures(outcome), agrees


def summary(outcomes: Sequence[Outcome]) -> str:
    kernels = {(outcome.case.name, name) for outcome in outcomes for name in outcome.kernels}
    return f"{len(kernels)} kernels; {sum(outcome.good for outcome in outcomes)} of {len(outcomes)} checks agree"


HEAD = ("package", "what is called", "kernels", "largest distance", "allowed", "agrees")

if __name__ == "__main__":
    for name in ROOMS:  # they add their cases
        import_module(f"tests.engines.packages.checks.{name}")
    main(Table("packages", HEAD, row, summary))
