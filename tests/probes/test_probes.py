"""Probes find nothing: each op gives what torch gives, or refuses with an error that says why, whatever is drawn."""

from __future__ import annotations

import collections
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.probes.draw import OPS, Draw
from tests.probes.faults import FAULTS
from tests.probes.kinds import KINDS
from tests.probes.modes import MODES
from tests.probes.outputs import OUTPUTS
from tests.probes.probe import FOCUS
from tests.probes.runner import Outcome
from tests.probes.tensors import LAYOUTS, MEMORY

ROOT = Path(__file__).parents[2]
QUICK, MANY, CHUNK = 300, 2700, 300
SEED = 1


def probed(seed: int, first: int, count: int) -> list[Outcome]:
    """Runs cases in a process that has no threads yet, and so can be forked."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.probes", "--seed", str(seed), "--first", str(first), "--count", str(count), "--json"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.stdout, done.stderr[-3000:]
    return [Outcome(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]


def failures(seed: int, outcomes: list[Outcome]) -> str:
    return "\n".join(outcome.line(seed) for outcome in outcomes if outcome.problem)


def test_quick_probes_find_nothing_and_reach_everything() -> None:
    outcomes = probed(SEED, 0, QUICK)
    assert len(outcomes) == QUICK
    assert not failures(SEED, outcomes), failures(SEED, outcomes)
    counts = collections.Counter((axis, value) for outcome in outcomes for axis, value in outcome.drawn.items())
    for op in OPS:
        assert counts["op", op] >= QUICK // len(OPS)
    axes = {
        "layout": LAYOUTS,
        "memory": MEMORY,
        "focus": FOCUS,
        "mode": MODES,
        "output": OUTPUTS,
        "kind": KINDS,
        "fault": FAULTS,
    }
    assert not [(axis, value) for axis, values in axes.items() for value in values if counts[axis, value] == 0]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK, QUICK + MANY, CHUNK))
def test_many_probes_find_nothing(first: int) -> None:
    outcomes = probed(SEED, first, CHUNK)
    assert len(outcomes) == CHUNK
    assert not failures(SEED, outcomes), failures(SEED, outcomes)


def test_a_case_follows_from_its_seed_and_index() -> None:
    assert Draw(3, 40).deal("layout", list(LAYOUTS)) == Draw(3, 40).deal("layout", list(LAYOUTS))
    assert {Draw(3, index).op for index in range(9)} == set(OPS)
    assert len({Draw(3, index).any(range(10**6)) for index in range(50)}) > 45


# -- probes can fail: what they see of functions in softmax's place -----------------------------------------------------------------

FAULTY = """
import json, os
import kernelpack, torch
from tests.probes import probe as probes
from tests.probes.modes import MODES
from tests.probes.runner import prepare, run

real = torch.ops.kernelpack.softmax

def is_wrong(x, *args):
    got = real(x, *args)
    if got.numel():
        got.view(-1)[-1] += 0.25
    return got

def writes(x, *args):
    got = real(x, *args)
    if x.numel():
        x.as_strided((1,), (1,)).fill_(3.25)
    return got

def aliases(x, *args):
    return x.copy_(real(x, *args))

def takes_all(x, *args):
    return real(x.contiguous(), *args)

def says_little(x, *args):
    try:
        return real(x, *args)
    except RuntimeError:
        raise RuntimeError("something is wrong")

def hangs(x, *args):
    while True:
        pass

def dies(x, *args):
    os.abort()

class Faulty:
    default = real.default

    def __init__(self, function):
        self.function = function

    def __call__(self, *args):
        return self.function(*args)

prepare()
probes.MODES = {"plain": MODES["plain"]}
probes.FOCUS = ["mode"]
indices = [index for index in range(270) if probes.Draw(1, index).op == "softmax"]
for function in (is_wrong, writes, aliases, takes_all, says_little, hangs, dies):
    torch.ops.kernelpack.softmax = Faulty(function)
    for outcome in run(lambda index, watch: probes.probe(1, index, watch), indices[: 2 if function in (hangs, dies) else None]):
        print(json.dumps([function.__name__, outcome.line(1).replace("\\n", " ")]))
"""

FOUND = {
    "is_wrong": ("error|elements", 18),
    "writes": ("the memory of an argument was written to|SIGSEGV", 18),
    "aliases": ("the memory of an argument was written to|SIGSEGV", 8),
    "takes_all": ("was not refused", 6),
    "says_little": ("was refused by RuntimeError: something is wrong, expected", 6),
    "hangs": ("focus mode.*hangs: not done after", 2),
    "dies": ("focus mode.*the process was ended by SIGABRT", 2),
}
"""What is said of each function, and how often at least; two cases are run of those that end the process, else 30."""


def test_faulty_ops_are_found() -> None:
    done = subprocess.run([sys.executable, "-c", FAULTY], cwd=ROOT, capture_output=True, text=True, timeout=300)
    problems = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    for name, (said, count) in FOUND.items():
        found = [problem for function, problem in problems if function == name and re.search(said, problem)]
        assert len(found) >= count, (name, problems, done.stderr[-3000:])
