"""Runs workers for a while, catches what kills them, and says what came of it: a line for each subject."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.subject import ROOT, Finding
from tests.fuzz.worker import Current, has_atheris, keep

FOLDER = ROOT / "build" / "fuzz"
HANGS_S = 60.0
"""A worker that starts no input for so long hangs where Python cannot stop it."""


@dataclass(frozen=True)
class Result:
    """What fuzzing a subject came to. `findings` are the failing inputs."""

    name: str
    seconds: float
    inputs: int
    features: int
    findings: tuple[Path, ...]

    def __str__(self) -> str:
        found = f"{len(self.findings)} findings" if len(self.findings) != 1 else "1 finding"
        lines = [f"{self.name:<10} {self.seconds:6.0f} s {self.inputs:10} inputs {self.features:7} features   {found}"]
        return "\n".join([*lines, *(f"    {path}: {_summary(path)}" for path in self.findings)])


def _summary(path: Path) -> str:
    """Returns the last line of what a failing input raised."""
    lines = path.with_suffix(".txt").read_text().strip().splitlines()
    return lines[-1][:160] if lines else ""


COMPILED = ("cpp", "language_model", "bodies")
"""Subjects in processes of their own, whose branches Atheris does not see."""


def fuzz(name: str, seconds: float, *, seed: int = 1, folder: Path = FOLDER, atheris: bool | None = None) -> Result:
    """Fuzzes a subject for so long, in workers: one after the other where they crash."""
    place = folder / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    by_atheris = (has_atheris() if atheris is None else atheris) and name not in COMPILED
    started = time.monotonic()
    inputs = features = 0
    while (left := started + seconds - time.monotonic()) > 0 or inputs == 0:
        current = Current(place / ".current", create=True)
        _work(name, place, max(left, 0.1), seed, current, by_atheris)
        report = json.loads((place / ".report").read_text()) if (place / ".report").exists() else {"features": 0}
        if current.get()[0] == 0:
            raise RuntimeError(f"the worker of {name} did not start:\n{(place / '.log').read_text()}")
        inputs += current.get()[0]
        features = max(features, report["features"], _libfuzzer_features(place / ".log"))
        seed += 1
    kept = [path for path in sorted(place.iterdir()) if path.name[0] != "." and path.suffix != ".txt"]
    return Result(name, time.monotonic() - started, inputs, features, tuple(kept))


def _work(name: str, place: Path, seconds: float, seed: int, current: Current, by_atheris: bool) -> None:
    """Runs a worker to its end, or until it hangs. What kills it becomes a finding."""
    command = [sys.executable, "-m", "tests.fuzz", name, "--work", str(place), "--seconds", str(seconds), "--seed", str(seed)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERNELPACK_LOAD_LIBRARY": "0", "PYTHONHASHSEED": str(seed)}
    with (place / ".log").open("wb") as log:
        worker = subprocess.Popen(
            [*command, *(["--atheris"] if by_atheris else [])], cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        count, since = 0, time.monotonic()
        while True:
            try:
                code = worker.wait(0.2)
                break
            except subprocess.TimeoutExpired:
                pass
            if current.get()[0] != count:
                count, since = current.get()[0], time.monotonic()
            if time.monotonic() - since > HANGS_S:
                worker.kill()
                worker.wait()
                keep(place, Finding("Hang", "?", f"no end within {HANGS_S} s"), current.get()[1])
                return
    if code != 0 and current.get()[0]:
        log_text = (place / ".log").read_text(errors="replace")
        keep(
            place,
            Finding("Crash", _crash_place(log_text), f"{log_text[-8000:]}\nthe process ended with code {code}"),
            current.get()[1],
        )


def _crash_place(log: str) -> str:
    """Returns where a worker crashed, as its log says it."""
    frames = re.findall(r'^ *#\d+ .* in (\S+)|File "([^"]*kernelpack/[^"]*)", line (\d+)', log, re.MULTILINE)
    return str(frames[-1]) if frames else "?"


def _libfuzzer_features(log: Path) -> int:
    """Returns how many features libFuzzer counted; 0 where it did not run."""
    return max(map(int, re.findall(r"\bft: (\d+)", log.read_text(errors="replace"))), default=0)


def fuzz_all(names: Sequence[str], seconds: float, jobs: int) -> int:
    """Fuzzes subjects, so many at a time, prints a line for each, and returns an exit code."""
    kind = "Atheris" if has_atheris() else "seeded mutations; make fuzz installs Atheris, which finds more"
    print(f"fuzzing {len(names)} subjects by {kind}", flush=True)
    failed = False
    with ThreadPoolExecutor(jobs) as pool:
        for result in pool.map(lambda name: fuzz(name, seconds), names):
            print(result, flush=True)
            failed = failed or bool(result.findings)
    return 1 if failed else 0
