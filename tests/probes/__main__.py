"""`python -m tests.probes --seed S --count N [--op softmax] [--index I]` probes the ops: prints what failed, and what was covered."""

from __future__ import annotations

import argparse
import collections
import json
import sys
from dataclasses import asdict

import kernelpack
from tests.probes.draw import OPS, Draw
from tests.probes.probe import AXES, probe
from tests.probes.runner import Outcome, prepare, run


def outcomes(seed: int, indices: list[int]) -> list[Outcome]:
    """Runs cases of a seed in forked children."""
    prepare()
    return run(lambda index, watch: probe(seed, index, watch), indices)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the index of the first case")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--index", type=int, help="one case alone")
    parser.add_argument("--op", choices=OPS)
    parser.add_argument("--json", action="store_true", help="a line of JSON for each case, nothing else")
    parser.add_argument("--quiet", action="store_true", help="no table of what was covered")
    given = parser.parse_args()
    assert kernelpack.__version__
    indices = list(range(given.first, given.first + given.count)) if given.index is None else [given.index]
    if given.op is not None:
        indices = [index for index in indices if Draw(given.seed, index).op == given.op]
    done = outcomes(given.seed, indices)
    failed = [outcome for outcome in done if outcome.problem]
    if given.json:
        print(*(json.dumps(asdict(outcome)) for outcome in done), sep="\n")
        return bool(failed)
    for outcome in failed:
        print(outcome.line(given.seed))
    if not given.quiet:
        for axis in AXES:
            counts = collections.Counter(outcome.drawn[axis] for outcome in done if axis in outcome.drawn)
            print(f"{axis}: " + ", ".join(f"{value} {count}" for value, count in sorted(counts.items())))
    print(f"{len(done)} cases, {len(failed)} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
