"""Rows of a benchmark: which direction is better, the table, the JSON file, the command line."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import OURS, Case, measure, processes
from kernelpack.errors import BuildError
from kernelpack.report.plot import LOWER_IS_BETTER


@dataclass(frozen=True)
class Row:
    """What kernelpack and a peer reached in a case, in `unit`. A row with a `limit` says whether it was kept."""

    case: str
    unit: str
    ours: float
    peer: str
    theirs: float
    limit: float | None = None

    @property
    def ratio(self) -> float:
        """Above 1: kernelpack is better."""
        better, worse = (self.theirs, self.ours) if self.unit in LOWER_IS_BETTER else (self.ours, self.theirs)
        return better / worse if worse else math.inf

    @property
    def passed(self) -> bool:
        """Whether the limit was kept; True without one."""
        if self.limit is None:
            return True
        return self.ours <= self.limit if self.unit in LOWER_IS_BETTER else self.ours >= self.limit

    def record(self) -> dict[str, Any]:
        """Returns the row as it stands in the JSON file."""
        names = ("case", "unit", "ours", "peer", "theirs", "ratio")
        limits = {} if self.limit is None else {"limit": self.limit, "pass": self.passed}
        return {**{name: getattr(self, name) for name in names}, **limits}


def machine(device: str) -> dict[str, Any]:
    """Returns what the figures depend on of the hardware."""
    models = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    found: dict[str, Any] = {"cpu": models[0] if models else platform.processor(), "cores": len(os.sched_getaffinity(0))}
    if device == "cuda":
        found["gpu"] = torch.cuda.get_device_name()
    return found


def versions(device: str) -> dict[str, str]:
    """Returns what the figures depend on of the software."""
    found = {
        "kernelpack": import_module("kernelpack.version").VERSION,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    if os.environ.get("KERNELPACK_CPU_TARGET"):
        found["KERNELPACK_CPU_TARGET"] = os.environ["KERNELPACK_CPU_TARGET"]
    for package in ("llvmlite", "nvidia-cuda-nvcc") if device == "cpu" else ():
        with suppress(metadata.PackageNotFoundError):  # only building ops needs it
            found[package] = metadata.version(package)
    if device == "cuda":
        found |= {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}
    return found


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).is_file() else []


class Table:
    """Prints rows as they come, and at the end what they amount to for each peer."""

    def __init__(self, cases: Sequence[str]) -> None:
        self.rows: list[Row] = []
        self._width = max([len("case"), *map(len, cases)])
        print(f"{'case':{self._width}}  {'unit':8} {OURS:>10}  {'peer':16} {'theirs':>10}  ratio")

    def add(self, row: Row) -> None:
        self.rows.append(row)
        kept = "" if row.limit is None else f"  limit {row.limit:g}: {'kept' if row.passed else 'BROKEN'}"
        line = f"{row.case:{self._width}}  {row.unit:8} {row.ours:>10.4g}  {row.peer:16} {row.theirs:>10.4g}  {row.ratio:5.2f}{kept}"
        print(line, flush=True)

    def summarise(self) -> None:
        """Prints each peer's geometric mean and worst row."""
        for peer in dict.fromkeys(row.peer for row in self.rows):
            rows = [row for row in self.rows if row.peer == peer]
            worst = min(rows, key=lambda row: row.ratio)
            mean = math.exp(math.fsum(math.log(row.ratio) for row in rows) / len(rows))
            print(f"{peer}: geometric mean {mean:.2f}, worst {worst.ratio:.2f} ({worst.case})")


def write_json(path: Path, device: str, rows: Sequence[Row]) -> None:
    text = json.dumps(
        {"machine": machine(device), "versions": versions(device), "rows": [row.record() for row in rows]}, indent=1
    )
    path.write_text(text + "\n")


def arguments(subject: str) -> argparse.ArgumentParser:
    """Returns the command line that all benchmarks share."""
    parser = argparse.ArgumentParser(prog=f"python -m {subject}", description=import_module(subject).__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine, versions and rows there")
    parser.add_argument("--quick", action="store_true", help="a few small cases and rounds: does it work?")
    return parser


def case_arguments(subject: str) -> argparse.ArgumentParser:
    """Returns the command line that benchmarks of cases share; see `chosen`."""
    parser = arguments(subject)
    parser.add_argument("--only", default="", metavar="WORDS", help="only cases with all these words in their names")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="how often everybody is timed (default: 9)")
    return parser


def chosen(parser: argparse.ArgumentParser, asked: argparse.Namespace, cases: Sequence[Case]) -> list[Case]:
    """Returns the cases that were asked for; ends the program where there are none."""
    found = [case for case in cases if all(word in case.name for word in asked.only.split())]
    if not found:
        parser.error(f"no case has {asked.only!r} in its name")
    return found


def main(subject: str, argv: Sequence[str] | None = None) -> None:
    """Runs the benchmark in the module `subject`."""
    parser = case_arguments(subject)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--library", metavar="FOLDER", help="an op library other than kernelpack's own")
    asked = parser.parse_args(argv)
    if asked.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no CUDA device; to fix: run on a machine with a GPU, or with --device cpu")
    cases = chosen(parser, asked, import_module(subject).cases(asked.device, asked.quick))
    table = Table([case.name for case in cases])
    with processes(subject, asked.library, [peer for case in cases for peer in case.peers]) as process_of:
        for case in cases:
            try:
                seconds = measure(case, process_of, 2 if asked.quick else asked.rounds)
            except BuildError as error:
                sys.exit(str(error))
            for peer in case.peers:
                table.add(Row(case.name, case.unit, case.work / seconds[OURS], peer, case.work / seconds[peer]))
    table.summarise()
    if asked.json is not None:
        write_json(asked.json, asked.device, table.rows)
