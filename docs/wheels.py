"""Tries a wheel of `kernelpack wheel` in fresh environments, one for each Python and torch, and keeps what came in docs/wheels.json.

Run: python -m docs.wheels WHEEL --environments DIR --python python3.11 --torch 2.13.0; then make readme.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "docs" / "wheels.json"
SMOKE = ROOT / "tests" / "serving" / "smoke.py"
CUDA_ONLY, NONE = "CUDA build only", "no build"


def try_wheel(wheel: Path, python: str, torch: str, environments: Path, *, cuda: bool) -> dict[str, str]:
    """Returns what one cell of the table says. An environment that is there is taken as it is but for the wheel. `cuda`: whether a
    build of torch for GPUs, some gigabytes, is installed where pip has none for the CPU alone."""
    version = _said(python, "-c", "import platform; print(platform.python_version())").strip()
    cell = {"python": version.rpartition(".")[0], "torch": torch}
    place = environments / f"{cell['python']}-{torch}"
    if not (place / "bin" / "python").exists():
        needs = _needs_of_torch(python, torch)
        if needs is None:
            return {**cell, "result": NONE}
        if not cuda and any("nvidia" in need or "cuda" in need for need in needs):
            return {**cell, "result": CUDA_ONLY}
        _said(python, "-m", "venv", str(place))
        _said(str(place / "bin" / "python"), "-m", "pip", "install", "-q", f"torch=={torch}")
    own = str(place / "bin" / "python")
    _said(own, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--force-reinstall", str(wheel))
    _said(own, "-m", "pip", "check")
    done = _run(own, str(SMOKE), wheel.name.partition("-")[0])
    said = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()[-1:]
    return {**cell, "result": "works" if done.returncode == 0 else "fails", "said": "".join(said)}


def _needs_of_torch(python: str, torch: str) -> list[str] | None:
    """Returns what the build of torch needs that pip would install for a Python; None where there is no such build."""
    with tempfile.TemporaryDirectory() as scratch:
        _said(python, "-m", "venv", scratch)
        report = Path(scratch) / "report.json"
        words = ["-m", "pip", "install", "-q", "--dry-run", "--no-deps", "--report", str(report), f"torch=={torch}"]
        if _run(str(Path(scratch) / "bin" / "python"), *words).returncode != 0:
            return None
        (found,) = json.loads(report.read_text())["install"]
        needs: list[str] = [need for need in found["metadata"].get("requires_dist", []) if "extra ==" not in need]
        return needs


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KERNELPACK_"))}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tempfile.gettempdir(), check=False)


def _said(*command: str) -> str:
    done = _run(*command)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return done.stdout


def table_rows(record: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Returns the head and the rows of the table: a row for each Python, a column for each torch."""

    def ordered(name: str) -> list[str]:
        return sorted({cell[name] for cell in record["cells"]}, key=lambda text: [int(part) for part in text.split(".")])

    results = {(cell["python"], cell["torch"]): cell for cell in record["cells"]}
    torchs = ordered("torch")
    rows = []
    for python in ordered("python"):
        cells = [results.get((python, torch)) for torch in torchs]
        rows.append((python, *(_cell(cell) if cell else "not tried" for cell in cells)))
    return ("Python", *(f"torch {torch}" for torch in torchs)), rows


def _cell(cell: dict[str, str]) -> str:
    build = cell.get("said", "").rpartition("+")[2] if "+" in cell.get("said", "") else ""
    return f"{cell['result']}, {build}" if build and cell["result"] == "works" else cell["result"]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--environments", type=Path, required=True, help="where the environments are made")
    parser.add_argument("--python", action="append", required=True, help="a Python; give it again for several")
    parser.add_argument("--torch", action="append", required=True, help="a release of torch; give it again for several")
    parser.add_argument(
        "--cuda", action="append", default=[], metavar="PYTHON-TORCH", help="3.10-2.10.0: may be a build for GPUs"
    )
    parser.add_argument("--remove", action="store_true", help="remove each environment after its test")
    parser.add_argument("--record", type=Path, default=RECORD)
    arguments = parser.parse_args(argv)
    cells = []
    for python in arguments.python:
        for torch in arguments.torch:
            name = f"{_said(python, '-c', 'import sys; print(*sys.version_info[:2], sep=chr(46))').strip()}-{torch}"
            cuda = name in arguments.cuda
            cells.append(try_wheel(arguments.wheel.resolve(), python, torch, arguments.environments.resolve(), cuda=cuda))
            print(cells[-1], flush=True)
            if arguments.remove:
                shutil.rmtree(arguments.environments / name, ignore_errors=True)
    platform = arguments.wheel.stem.rpartition("-")[2]
    arguments.record.write_text(json.dumps({"platform": platform, "cells": cells}, indent=1) + "\n")


if __name__ == "__main__":
    main()
