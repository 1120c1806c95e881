"""Serves the model from kernels that were adopted: recorded, compiled ahead of time, and taken by a server that has no compiler.

python -m tests.engines.vllm.adopted    ends with 1 where the texts differ from V1's, or where the server was not watched by vLLM's monitor
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.engines.environment import ROOT, python
from tests.engines.vllm.environment import VLLM, variables
from tests.engines.vllm.serve import QUESTION, ask, server

QUESTIONS = (QUESTION, "Count to ten.", "Write a haiku about rain.")
ROUNDS = 5
WATCHED = Path(__file__).parent / "watched"


def answers(folder: Path, runner: str, more: Mapping[str, str]) -> tuple[list[str], float]:
    """Returns what a server answers, and the seconds until it was ready."""
    started = time.monotonic()
    with server(folder, runner, more=more) as address:
        ready = time.monotonic() - started
        return [ask(address, question) for question in QUESTIONS], ready


def adopt(folder: Path, record: Path, packs: Path) -> None:
    """Compiles what a record has for this CPU, with vLLM's environment, into a new folder."""
    shutil.rmtree(packs, ignore_errors=True)
    command = [python(folder), "-m", "kernelpack", "adopt", record, "--target", "cpu:native", "--out", packs]
    subprocess.run(command, cwd=ROOT, env=variables(folder, "v2"), check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    VLLM.add_folder(parser)
    folder: Path = parser.parse_args().folder
    VLLM.set_up(folder)
    record, packs = folder / "record.jsonl", folder / "packs"
    record.unlink(missing_ok=True)
    expected, _ = answers(folder, "v1", {})
    answers(folder, "v2", {"KERNELPACK_TRACE": str(record)})
    adopt(folder, record, packs)
    adopted = {
        "KERNELPACK_PACKS": str(packs),
        "KERNELPACK_MISS": "error",
        "KERNELPACK_CACHE": "0",
        "PYTHONPATH": os.pathsep.join((str(WATCHED), str(ROOT))),
    }
    starts: dict[str, list[float]] = {"v1": [], "v2": []}
    good = True
    for _ in range(ROUNDS):
        for runner in starts:
            found, ready = answers(folder, runner, adopted if runner == "v2" else {})
            starts[runner].append(ready)
            good = good and found == expected
        good = good and "watched: nothing is to be compiled" in (folder / "serve-v2.log").read_text()
    print(f"{'same texts' if good else 'TEXTS DIFFER, or not watched'}: {expected[0]!r}")
    one, two = (statistics.median(starts[runner]) for runner in ("v1", "v2"))
    print(f"ready after {one:.1f} s (V1), {two:.1f} s (V2, adopted kernels): {one / two:.2f}")
    sys.exit(not good)


if __name__ == "__main__":
    main()
