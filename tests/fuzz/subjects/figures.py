"""Figures of benchmarks: read, and drawn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

from kernelpack.report.plot import plots_of
from tests.fuzz.mutate import json_mutated, mutated
from tests.fuzz.subject import ROOT, Subject


def _seeds() -> list[bytes]:
    found = []
    for file in sorted((ROOT / "docs" / "benchmarks").glob("*-h100.json")):
        record = json.loads(file.read_text())
        found.append(json.dumps({**record, "rows": record["rows"][:6]}).encode())
    return found


def _run(data: bytes, folder: Path) -> None:
    file = folder / "figures.json"
    file.write_bytes(data)
    for svg in plots_of(file):
        svg.encode()


def _mutate(data: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    return json_mutated(data, random) if random.random() < 0.8 else mutated(data, random, others)


SUBJECT = Subject(_seeds, _run, mutate=_mutate)
