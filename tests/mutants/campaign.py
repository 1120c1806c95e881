"""Judges many mutants in forked children, and counts what came of them."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.mutant import Mutant
from tests.mutants.oracle import EQUAL, OUTCOMES, REFUSED, Finding, judge
from tests.probes.draw import Watch
from tests.probes.runner import Outcome, run

SECONDS = 20.0
"""The processor time after which a mutant hangs."""
DRAWS = 2
"""How often a mutant is drawn until both sides accept it. Those that they refuse are judged, too."""
FINDING = "finding"


@dataclass(frozen=True)
class Result:
    """What came of mutants: how many by outcome, and the command that repeats each finding, with what is wrong and the diff."""

    counts: dict[str, int]
    findings: tuple[str, ...]

    @property
    def share_run(self) -> float:
        """The share of mutants whose results were compared."""
        return self.counts.get(EQUAL, 0) / max(1, sum(self.counts.values()))

    def __str__(self) -> str:
        counted = ", ".join(f"{name} {self.counts.get(name, 0)}" for name in (*OUTCOMES, FINDING))
        return "\n".join([*self.findings, f"{sum(self.counts.values())} mutants: {counted}"])


def judge_all(campaign: int, numbers: Iterable[int], folder: Path) -> Result:
    """Judges mutants of a campaign; their sources lie in the folder."""

    def one(number: int, watch: Watch) -> tuple[dict[str, str], str]:
        for draw in range(DRAWS):
            mutant = Mutant.of(campaign, number, draw)
            drawn = {"seed": mutant.seed.name, "kinds": ", ".join(mutant.kinds), "draw": str(draw)}
            watch({**drawn, "outcome": FINDING})
            try:
                drawn["outcome"] = judge(mutant, folder)
            except Finding as problem:
                return {**drawn, "outcome": FINDING}, str(problem)
            if drawn["outcome"] != REFUSED:
                break
        return drawn, ""

    folder.mkdir(parents=True, exist_ok=True)
    done = run(one, numbers, seconds=SECONDS)
    counts = collections.Counter(FINDING if outcome.problem else outcome.drawn["outcome"] for outcome in done)
    return Result(dict(counts), tuple(_shown(campaign, outcome) for outcome in done if outcome.problem))


def _shown(campaign: int, outcome: Outcome) -> str:
    mutant = Mutant.of(campaign, outcome.index, int(outcome.drawn.get("draw", 0)))
    return f"python -m tests.mutants --seed {campaign} --number {outcome.index}\n{outcome.problem}\n{mutant.diff()}\n"
