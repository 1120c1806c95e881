"""Scopes: host code's names for what it does, with metrics of its own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ContextDecorator
from typing import Any

from kernelpack.errors import ProfilerError
from kernelpack.profiler.recording import HERE, LaunchSite
from kernelpack.profiler.sessions import SESSIONS


class scope(ContextDecorator):
    """What runs inside of it belongs to `name`, below the scopes around it: `with scope("forward", {"flops16": 2 * m * n * k}):`, or
    a function's decorator.

    `metrics` are numbers, or tensors of numbers, which are read at the end. Those of calls are summed up, and those of children belong to
    their parents too: `NAME (exc)` does not, `NAME (pty)` is the last one's. The viewer derives rates from `flops`, `flops8` to
    `flops64` and `bytes`.
    """

    def __init__(self, name: str, metrics: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.metrics = metrics

    def _recreate_cm(self) -> scope:
        return type(self)(self.name, self.metrics)

    def __enter__(self) -> scope:
        enter_scope(self.name, metrics=self.metrics)
        return self

    def __exit__(self, *problem: object) -> None:
        exit_scope(self.name)


class cpu_timed_scope(scope):
    """A scope whose time on the host, from entering to leaving it, is the metric cpu_time."""

    def __enter__(self) -> scope:
        self._started = time.perf_counter_ns()
        return super().__enter__()

    def __exit__(self, *problem: object) -> None:
        exit_scope(self.name, metrics={"cpu_time (ns) (exc)": time.perf_counter_ns() - self._started})


def enter_scope(name: str, *, metrics: Mapping[str, Any] | None = None) -> None:
    """Enters a scope, until `exit_scope`."""
    HERE.scopes.append(name)
    _note(metrics)
    if SESSIONS.recording is not None:
        SESSIONS.recording.move()


def exit_scope(name: str | None = None, *, metrics: Mapping[str, Any] | None = None) -> None:
    """Leaves the innermost scope. Raises ProfilerError if it has another name."""
    if not HERE.scopes or name not in (None, HERE.scopes[-1]):
        innermost = f"the innermost is {HERE.scopes[-1]!r}" if HERE.scopes else "there is none"
        raise ProfilerError(f"exit_scope({name!r}): {innermost}", cure="leave scopes in the opposite order of entering them")
    _note(metrics)
    HERE.scopes.pop()
    if SESSIONS.recording is not None:
        SESSIONS.recording.move()


def _note(metrics: Mapping[str, Any] | None) -> None:
    if SESSIONS.recording is not None and metrics:
        SESSIONS.recording.metrics.append((LaunchSite(tuple(HERE.scopes)), metrics))
