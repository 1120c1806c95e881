"""`python -m tests.fuzz [SUBJECT ...] [--seconds N] [--input FILE]`: fuzzes subjects (default: all), or repeats one input."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.campaign import fuzz_all
from tests.fuzz.subject import run_one
from tests.fuzz.subjects import NAMES
from tests.fuzz.worker import load, work


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"{', '.join(NAMES)}")
    parser.add_argument("--seconds", type=float, default=20, help="how long each is fuzzed (default: 20)")
    parser.add_argument("--jobs", type=int, default=1, help="how many are fuzzed at a time (default: 1)")
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--input", type=Path, metavar="FILE", help="repeat this input of one subject")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--atheris", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = given.subjects or list(NAMES)
    if unknown := [name for name in names if name not in NAMES and given.work is None]:
        parser.error(f"there is no subject {unknown[0]!r}; there are {', '.join(NAMES)}")
    if given.work is not None:
        work(names[0], given.work, given.seconds, given.seed, by_atheris=given.atheris)
        return 0
    if given.input is not None:
        if len(given.subjects) != 1:
            parser.error("--input needs one subject")
        return _repeat(names[0], given.input.read_bytes())
    return fuzz_all(names, given.seconds, given.jobs)


def _repeat(name: str, data: bytes) -> int:
    with tempfile.TemporaryDirectory() as folder:
        finding, _ = run_one(load(name), data, Path(folder))
    print("it passes" if finding is None else f"{finding.text}\n{finding.place}")
    return 0 if finding is None else 1


if __name__ == "__main__":
    sys.exit(main())
