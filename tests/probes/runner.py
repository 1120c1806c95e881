"""Runs probes in forked children, so that one that crashes or hangs is a failure of its own and the rest goes on."""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.ops.grid import module_of
from tests.probes.draw import OPS, Watch

Judge = Callable[[int, Watch], tuple[dict[str, str], str]]
"""Runs a case; returns what was drawn, by axis, and what is wrong, or ""."""

SECONDS = 2.0
"""A case that works for longer hangs. Waiting counts from WAITING times as long on, as the machine may be busy with other work."""
WAITING = 10
CASES_PER_CHILD = 100
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Outcome:
    """What became of a case. `problem` is "" where the op did what it must."""

    index: int
    drawn: dict[str, str]
    problem: str

    def line(self, seed: int) -> str:
        """Returns the command that runs a case again, what it is, and what is wrong with it."""
        drawn = ", ".join(f"{axis} {value}" for axis, value in self.drawn.items())
        return f"python -m tests.probes --seed {seed} --index {self.index}  # {drawn}\n    {self.problem}"


def prepare() -> None:
    """Imports what cases import, so that none of them has to wait for it; starts no threads, which would not survive a fork."""
    torch.set_num_threads(1)
    for name in ("torch._dynamo", "torch._functorch.aot_autograd", "torch.fx.experimental.symbolic_shapes"):
        importlib.import_module(name)
    for op in OPS:
        module_of(op)


def run(judge: Judge, indices: Iterable[int], seconds: float = SECONDS) -> list[Outcome]:
    """Runs cases in order. One that works for longer than `seconds` hangs."""
    outcomes: list[Outcome] = []
    todo = list(indices)
    while todo:
        done = _run_child(judge, todo[:CASES_PER_CHILD], seconds)
        outcomes += done
        todo = todo[len(done) :]
    return outcomes


def _run_child(judge: Judge, indices: list[int], seconds: float) -> list[Outcome]:
    """Runs cases in one child up to the end, or to the case that ends it."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setsid()  # what it forks ends with it
        _work(judge, indices, writer)
    os.close(writer)
    outcomes: list[Outcome] = []
    problem, drawn = "", {}
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        buffered = b""
        started, worked = time.monotonic(), _seconds_of(child)
        while len(outcomes) < len(indices):
            ready, _, _ = select.select([pipe], [], [], 0.1)
            if ready:
                data = os.read(pipe.fileno(), 65536)
                buffered += data
                *whole, buffered = buffered.split(b"\n")
                for line in whole:
                    said = json.loads(line)
                    drawn = said["drawn"]
                    if "problem" in said:
                        outcomes.append(Outcome(**said))
                        drawn = {}
                        started, worked = time.monotonic(), _seconds_of(child)
                if not data:
                    break
                continue
            if _seconds_of(child) - worked > seconds or time.monotonic() - started > WAITING * seconds:
                problem = f"hangs: not done after {time.monotonic() - started:.1f} s"
                os.killpg(child, signal.SIGKILL)
                break
    _, status = os.waitpid(child, 0)
    if len(outcomes) < len(indices):
        code = os.waitstatus_to_exitcode(status)
        ended = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        outcomes.append(Outcome(indices[len(outcomes)], drawn, problem or f"the process was {ended}"))
    return outcomes


def _work(judge: Judge, indices: list[int], writer: int) -> None:
    """The child: writes a line for each case that is done, and on the way one for each thing that was drawn."""
    code = 1

    def write(**said: Any) -> None:
        os.write(writer, json.dumps(said).encode() + b"\n")

    torch.set_num_threads(2)
    try:
        for index in indices:
            try:
                drawn, problem = judge(index, lambda drawn: write(drawn=drawn))
            except Exception:
                drawn, problem = {}, f"the probe itself failed: {''.join(traceback.format_exc().splitlines(True)[-5:])}"
            write(index=index, drawn=drawn, problem=problem)
        code = 0
    finally:
        os._exit(code)


def _seconds_of(process: int) -> float:
    """Returns how long a process has worked, all threads together."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
