"""Traces of models, as `kernelpack trace` shows them, and profiles, as the viewer does. The first line says which it is."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

from kernelpack.cli.trace import _record, _text
from kernelpack.opgen.trace import read_trace
from kernelpack.profiler import viewer
from tests.fuzz.mutate import json_mutated, mutated
from tests.fuzz.subject import Subject

_CALLS = (
    {
        "op": "my::scale",
        "tensors": [{"name": "x", "dtype": "float16", "shape": [8, 1024], "strides": [1024, 1]}, {"name": "bias"}],
        "launches": [{"kernel": "scale", "target": "cpu:x86-64-v3", "variant": "scale-f16.aligned", "facts": ["n % 16 == 0"]}],
        "calls": 3,
    },
    {"op": "my::scale", "tensors": [], "launches": [], "refused": "x must be\n2-d", "calls": 1},
)
_PROFILE = [
    {
        "frame": {"name": "ROOT", "type": "function"},
        "metrics": {"time (ns)": 30.0, "count": 2},
        "children": [
            {"frame": {"name": "scope", "type": "function"}, "metrics": {"flops16": 2e9}, "children": []},
            {
                "frame": {"name": "kernel", "type": "function"},
                "metrics": {"time (ns)": 10, "count": 1, "bytes": 4},
                "children": [],
            },
        ],
    },
    {"CPU": {}},
]


def _seeds() -> list[bytes]:
    calls = "\n".join(map(json.dumps, _CALLS)).encode()
    return [b"trace\n" + calls, b"trace\n" + json.dumps(_CALLS[0]).encode(), b"profile\n" + json.dumps(_PROFILE).encode()]


def _run(data: bytes, folder: Path) -> None:
    kind, _, rest = data.partition(b"\n")
    file = folder / "file"
    file.write_bytes(rest)
    if kind == b"profile":
        for metrics in (["time/ms"], ["avg_time/us", "time/%", "tflop16/s", "gbyte/s"]):
            with contextlib.redirect_stdout(io.StringIO()):
                viewer.print_tree(*viewer.parse(metrics, file, include=".*e", threshold=1e-9))
        return
    for library in (None, folder / "library"):
        (folder / "library" / "packs").mkdir(parents=True, exist_ok=True)
        trace = read_trace(file, library)
        json.dumps(_record(trace))
        "\n".join(_text(trace, True)).encode()


def _mutate(data: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    kind, _, rest = data.partition(b"\n")
    if random.random() < 0.8:
        lines = rest.split(b"\n")
        at = random.randrange(len(lines))
        lines[at] = json_mutated(lines[at], random)
        return b"\n".join([kind, *lines])
    return kind + b"\n" + mutated(rest, random, [other.partition(b"\n")[2] for other in others[-20:]])


SUBJECT = Subject(_seeds, _run, mutate=_mutate)
