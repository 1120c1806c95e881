"""Results of `kernelpack tune`: read, and turned into the tables that builds hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from random import Random

import kernelpack as kp
from kernelpack.opgen.stated.config import Fastest
from kernelpack.opgen.variants.decisions import Choices, PointResults, Results, config_text, read_results
from kernelpack.target import Target
from tests.fuzz.mutate import json_mutated, mutated
from tests.fuzz.subject import Subject

CONFIGS = tuple(kp.Config({"BLOCK": block}, num_warps=block // 16) for block in (32, 64, 128))
TARGET = Target.parse("cpu:x86-64-v3")
FASTEST = Fastest(CONFIGS, key=("rows", "columns"))


def _seeds() -> list[bytes]:
    times = {
        (rows, columns): {config_text(config): 1e-6 * (rows + columns / config.kwargs["BLOCK"]) for config in CONFIGS}
        for rows in (1, 64, 4096)
        for columns in (32, 1024)
    }
    times[1, 32][config_text(CONFIGS[0])] = math.inf
    folder = Path("build") / "fuzz" / ".tuned"
    results = Results("mha", "AMD EPYC 9354", str(TARGET), {"mha_fwd": PointResults(("rows", "columns"), "mha.py:3", times)})
    results.save(folder)
    return [(folder / results.file_name).read_bytes()]


def _run(data: bytes, folder: Path) -> None:
    file = folder / "tuned" / "mha.cpu_x86_64_v3.some.json"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(data)
    for results in read_results(file.parent, "mha"):
        str(results.file_name)
    found = Choices().explain("mha", str(folder / "ops.py"), TARGET, "mha_fwd", FASTEST)
    found.gain_text()
    found.record()
    for sizes in ((0, 0), (1, 32), (10**6, 10**6)):
        assert found.decision.choose(sizes) in range(len(CONFIGS))


def _mutate(data: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    return json_mutated(data, random) if random.random() < 0.8 else mutated(data, random, others)


SUBJECT = Subject(_seeds, _run, mutate=_mutate)
