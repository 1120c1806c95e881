"""Kernels that were adopted: what a launch costs beside one that was compiled in the process, and how soon a process has its first result.

Run: python -m benchmarks.adopted --device cpu or cuda [--json FILE]. Each figure is the median of processes, in turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.report import Row, Table, write_json
from kernelpack.adopt.build import adopt
from kernelpack.backends.installed import backends
from kernelpack.runtime.packs import read_folder

TURNS = 7


def run(what: str, argument: str, more: Mapping[str, str]) -> tuple[float, str]:
    """Returns the seconds that a process took, and what it printed."""
    environment = {**os.environ, "KERNELPACK_LOAD_LIBRARY": "0", **more}
    start = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.adopted_kernel", what, argument]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{what} failed:\n{done.stderr}")
    return time.perf_counter() - start, done.stdout.strip()


def in_turns(contenders: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(TURNS + 1):
        for name in list(contenders)[:: 1 if turn % 2 else -1]:
            seconds = contenders[name]()
            if turn:  # the first one warms the files
                times[name].append(seconds)
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adopted", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    device, target = asked.device, backends()[asked.device].native_target()
    table = Table(["host time of a launch", "process until its first result"])
    with tempfile.TemporaryDirectory(prefix="kernelpack-") as place:
        folder = Path(place)
        run("launch", device, {"KERNELPACK_TRACE": str(folder / "record"), "KERNELPACK_CACHE_DIR": str(folder / "cache")})
        adopt([folder / "record"], targets=[target], out=folder / "packs")
        adopted = {"KERNELPACK_PACKS": str(folder / "packs"), "KERNELPACK_MISS": "error", "KERNELPACK_CACHE": "0"}
        compiled = {"KERNELPACK_CACHE_DIR": str(folder / "cache")}
        host = in_turns(
            {
                "adopted": lambda: float(run("host", device, adopted)[1]),
                "compiled": lambda: float(run("host", device, compiled)[1]),
            }
        )
        table.add(Row("host time of a launch", "us", host["adopted"] * 1e6, "compiled here", host["compiled"] * 1e6))
        if device == "cuda":
            packed = read_folder(folder / "packs")
            image = folder / "image"
            image.write_bytes(packed.load(packed.variants[0]).image)
            first = in_turns(
                {
                    "adopted": lambda: run("launch", device, adopted)[0],
                    "bare": lambda: run("bare", str(image), {})[0],
                }
            )
            table.add(Row("process until its first result", "s", first["adopted"], "the driver alone", first["bare"]))
    table.summarise()
    if asked.json is not None:
        write_json(asked.json, device, table.rows)


if __name__ == "__main__":
    main()
