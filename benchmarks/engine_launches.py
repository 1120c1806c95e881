"""What a launch of an engine's kernel costs the process that makes it, whatever the kernel does: launches of real calls, made again."""

from __future__ import annotations

import functools
import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.engine_worlds import World

IN_A_ROW = 100
"""Launches before the GPU is waited for: a stream takes about a thousand."""
TURNS = 3

Launch = Callable[[], Any]


def recorded(world: World, run: Callable[[], Any]) -> list[Launch]:
    """Returns the launches that a call makes in a world, to be made again with the same arguments."""
    found: list[Launch] = []
    with world.entered():
        kind = importlib.import_module("triton.runtime.jit").JITFunction
        own = {name: vars(kind).get(name) for name in ("run", "__getitem__")}
        launch = kind.run

        def record(self: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
            found.append(lambda: self[grid](*args, **kwargs))
            return launch(self, *args, grid=grid, warmup=warmup, **kwargs)

        kind.run = record
        kind.__getitem__ = lambda self, grid: functools.partial(record, self, grid=grid)
        try:
            run()
        finally:
            for name, value in own.items():
                if value is None:
                    delattr(kind, name)
                else:
                    setattr(kind, name, value)
    return found


def host_seconds(world: World, launches: Sequence[Launch]) -> float:
    """Returns the seconds of host time that all launches take together, each the median of repeated ones."""
    total = 0.0
    with world.entered():
        for launch in launches:
            times = []
            for _ in range(TURNS):
                torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(IN_A_ROW):
                    launch()
                times.append((time.perf_counter() - start) / IN_A_ROW)
            total += statistics.median(times)
    torch.cuda.synchronize()
    return total
