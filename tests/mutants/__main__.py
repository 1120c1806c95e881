"""`python -m tests.mutants [--seed S] [--count N] [--number K]`: judges mutants, or shows and judges one."""

from __future__ import annotations

import argparse
import sys

from tests.mutants.campaign import DRAWS, judge_all
from tests.mutants.mutant import Mutant
from tests.mutants.sources import ROOT

FOLDER = ROOT / "build" / "mutants"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="other seeds give other mutants (default: 0)")
    parser.add_argument("--count", type=int, default=500, help="how many are judged (default: 500)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one (default: 0)")
    parser.add_argument("--number", type=int, help="judge this one alone, and show how it differs from its seed")
    given = parser.parse_args()
    numbers = range(given.first, given.first + given.count)
    if given.number is not None:
        numbers = range(given.number, given.number + 1)
        print(*(Mutant.of(given.seed, given.number, draw).diff() for draw in range(DRAWS)), sep="\n\n")
    result = judge_all(given.seed, numbers, FOLDER)
    print(result)
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())
