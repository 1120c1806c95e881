"""Runs the cases of an engine, in its environment, and writes the table of its page."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.engines.cases import CASES, Outcome, outcome


@dataclass(frozen=True)
class Table:
    """The part of a page between `<!-- MARK -->` and `<!-- end -->`: a row for each outcome, and a sentence about all."""

    mark: str
    head: tuple[str, ...]
    row: Callable[[Outcome], tuple[str, ...]]
    summary: Callable[[Sequence[Outcome]], str]

    def text(self, outcomes: Sequence[Outcome]) -> str:
        rows = [self.head, tuple("-" for _ in self.head), *map(self.row, outcomes)]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows) + f"\n\n{self.summary(outcomes)}."

    def write(self, page: Path, outcomes: Sequence[Outcome]) -> None:
        """Writes the table into a page."""
        begin, end = f"<!-- {self.mark} -->\n", "\n<!-- end -->"
        before, _, rest = page.read_text().partition(begin)
        page.write_text(f"{before}{begin}{self.text(outcomes)}{end}{rest.partition(end)[2]}")


def figures(outcome: Outcome) -> tuple[str, str, str]:
    """Returns the cells of a row that every table has: kernels, distance, and the distance allowed."""
    return ", ".join(f"`{name}`" for name in outcome.kernels), f"{outcome.distance:.1g}", f"{outcome.case.tolerance:g}"


def main(table: Table) -> None:
    """Runs the cases that the command line asks for; ends the process with 1 where one does not agree."""
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="*", help="runs only cases whose names hold one of these")
    parser.add_argument("--page", type=Path, help="writes the table between the marks of this page")
    args = parser.parse_args()
    outcomes = []
    for case in CASES:
        name = f"{case.name} {case.about}"
        if args.words and not any(word in name for word in args.words):
            continue
        started = time.perf_counter()
        found = outcome(case)
        seconds = time.perf_counter() - started
        kernels = " ".join(found.kernels)
        print(f"{'ok  ' if found.good else 'MISS'} {name:70} {found.distance:8.2g} {seconds:5.1f} s  {kernels}", flush=True)
        outcomes.append(found)
    print(table.summary(outcomes))
    if args.page:
        table.write(args.page, outcomes)
    sys.exit(not all(found.good for found in outcomes))
