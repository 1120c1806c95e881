"""Kernels of engines and libraries, unmodified, compiled by kernelpack standing in for Triton, and by Triton: the speed of the code.

Run: python -m benchmarks.engines --packages DIR, where DIR holds the packages (pip install --no-deps --target DIR ...).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks import engine_calls, sglang_calls, sglang_other_calls
from benchmarks.engine_calls import Call
from benchmarks.engine_launches import host_seconds, recorded
from benchmarks.engine_worlds import World
from benchmarks.measure import OURS, Case, Prepared, Stopwatch
from benchmarks.report import Row, Table, write_json
from kernelpack import knobs
from kernelpack.adopt import adopt
from kernelpack.backends.installed import backends

CALLS = (*engine_calls.CALLS, *sglang_calls.CALLS, *sglang_other_calls.CALLS)
PEER = "triton"
TOLERANCE = 2e-2
"""Of the largest element."""
TURNS = 5
SECONDS = 0.02
"""How long a turn lasts, about."""


class Subject:
    """Both worlds, and what they call."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.worlds = {OURS: World(OURS), PEER: World(PEER)}
        self.calls = {call.name: call for call in calls}

    def cases(self, device: str, quick: bool) -> Sequence[Case]:
        return [Case(name, "us", 1e-6, device, (PEER,), graph=call.graph) for name, call in self.calls.items()]

    def prepare(self, case: Case) -> Prepared:
        call = self.calls[case.name]
        return Prepared(call.inputs, {name: self._contender(world, call) for name, world in self.worlds.items()})

    def _contender(self, world: World, call: Call) -> Callable[..., Any]:
        function = world.function(call.place)
        return lambda *inputs: call.run(function, *inputs)


def compare(subject: Subject, call: Call, prepared: Prepared) -> str:
    """Returns why the two results are not the same within the tolerance, or "". Each contender gets inputs of its own."""
    results = []
    for name, contender in prepared.contenders.items():
        torch.manual_seed(0)
        with subject.worlds[name].entered():
            result = contender(*call.inputs())
        torch.cuda.synchronize()
        results.append([one for one in (result if isinstance(result, (tuple, list)) else [result]) if one is not None])
    for ours, theirs in zip(*results, strict=True):
        one, other = ours.double(), theirs.double()
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            return f"{ours.dtype} {tuple(ours.shape)} instead of {theirs.dtype} {tuple(theirs.shape)}"
        apart = (one - other).abs()
        apart[one.isnan() & other.isnan() | (one == other)] = 0
        most = other[other.isfinite()].abs().max().item() if other.isfinite().any() else 0.0
        if not apart.max().item() <= TOLERANCE * most:
            return f"differs by {apart.max().item():.3g} of {most:.3g}"
    return ""


def call_once(subject: Subject, case: Case) -> str:
    """Calls a kernel of kernelpack's world, whose launches are recorded."""
    call = subject.calls[case.name]
    function = subject.worlds[OURS].function(call.place)
    with subject.worlds[OURS].entered():
        call.run(function, *call.inputs())
    torch.cuda.synchronize()
    return ""


def race(subject: Subject, case: Case, table: Table) -> str:
    """Times one case in turns and adds its row. Returns what went wrong, or ""."""
    watch = Stopwatch(subject, case)
    if problem := compare(subject, subject.calls[case.name], watch.prepared):
        return problem

    def seconds(name: str, calls: int) -> float:
        with subject.worlds[name].entered():
            return watch.seconds(name, calls)

    once = max(seconds(name, 3) for name in watch.contenders)
    calls = max(3, min(100, int(SECONDS / once)))
    times: dict[str, list[float]] = {name: [] for name in watch.contenders}
    for turn in range(TURNS):
        names = list(times) if turn % 2 == 0 else list(reversed(times))
        for name in names:
            times[name].append(seconds(name, calls))
    ours, theirs = (statistics.median(times[name]) for name in (OURS, PEER))
    table.add(Row(case.name, "us", ours * 1e6, PEER, theirs * 1e6))
    return ""


def race_launches(subject: Subject, case: Case, table: Table) -> str:
    """Times the host's part of a call's launches, in turns, and adds its row."""
    contenders, inputs = subject.prepare(case).contenders, subject.calls[case.name].inputs()
    launches = {name: recorded(subject.worlds[name], partial(run, *inputs)) for name, run in contenders.items()}
    count = {name: len(made) for name, made in launches.items()}
    if count[OURS] != count[PEER]:
        return f"{count[OURS]} launches instead of {count[PEER]}"
    times: dict[str, list[float]] = {name: [] for name in launches}
    for _ in range(3):
        for name, made in launches.items():
            times[name].append(host_seconds(subject.worlds[name], made))
    ours, theirs = (statistics.median(times[name]) / count[OURS] * 1e6 for name in (OURS, PEER))
    table.add(Row(case.name, "us", ours, PEER, theirs))
    return ""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    parser.add_argument("--packages", type=Path, required=True, help="a folder of packages")
    parser.add_argument("--only", default="", help="calls whose name holds this")
    parser.add_argument(
        "--compile", action="store_true", help="call each once, so that both compilers keep its kernels, and time nothing"
    )
    parser.add_argument("--launches", action="store_true", help="time the host's part of launches instead of the kernels")
    parser.add_argument(
        "--adopt",
        type=Path,
        help="with KERNELPACK_TRACE=FILE: call each once with kernelpack, and adopt its kernels into this folder",
    )
    parser.add_argument("--json", type=Path, help="a file for the figures")
    asked = parser.parse_args(argv)
    sys.path.insert(0, str(asked.packages))
    subject = Subject([call for call in CALLS if asked.only in call.name])
    table, failed = Table(list(subject.calls)), {}
    for case in subject.cases("cuda", quick=False):
        try:
            if asked.adopt is not None:
                problem = call_once(subject, case)
            elif asked.compile:
                problem = compare(subject, subject.calls[case.name], subject.prepare(case))
            else:
                problem = (race_launches if asked.launches else race)(subject, case, table)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            problem = f"{type(error).__name__}: {str(error)[:300]} ({place.filename}:{place.lineno})"
        if problem:
            failed[case.name] = problem
            print(f"{case.name}: {problem}", flush=True)
        torch.cuda.empty_cache()
    if table.rows:
        table.summarise()
    if asked.adopt is not None:
        with subject.worlds[OURS].entered():
            report = adopt([Path(knobs.TRACE.get())], targets=[backends()["cuda"].native_target()], out=asked.adopt)
        refused = [f"{one.kernel}: {one.problem}" for one in report.refused]
        print(
            f"adopted {report.variants} variants of {report.kernels} kernels, {report.bytes} bytes, {report.seconds:.1f} s",
            *refused,
            sep="\n",
        )
    if asked.json is not None:
        write_json(asked.json, "cuda", table.rows)
    print(f"{len(table.rows)} timed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
