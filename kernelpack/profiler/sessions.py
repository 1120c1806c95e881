"""Sessions: from `start` to `finalize`, which writes what was recorded while they were active."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, overload

from kernelpack.errors import ProfilerError
from kernelpack.files import generated
from kernelpack.profiler.frames import Frame, is_summed
from kernelpack.profiler.recording import LaunchSite, Recording, Timing

P = ParamSpec("P")
R = TypeVar("R")
DEFAULT_PROFILE_NAME = "proton"
_NUMBERS = itertools.count()


@dataclass(eq=False)
class Session:
    """A profile that is being made. `described`: kernels are called as their `launch_metadata` says, and have its metrics."""

    name: str
    described: bool
    active: bool = True
    root: Frame = field(default_factory=lambda: Frame("ROOT", {"count": 0, "time (ns)": 0}))
    devices: set[tuple[str, int]] = field(default_factory=set)

    @property
    def file(self) -> Path:
        """Where it is written: a link to the folder is followed, none to the file."""
        path = Path(f"{self.name}.hatchet")
        return path.parent.resolve() / path.name

    def frame_of(self, place: LaunchSite, name: str) -> Frame:
        """Returns the frame of what ran in a place under a name; the scope's, where there is none."""
        launch = place.described if self.described else place.kernel
        return self.root.at([*place.scopes, *filter(None, [launch or name])])

    def take(self, recording: Recording, timings: list[Timing]) -> None:
        for place, metrics in recording.metrics:
            if self.described or not place.kernel:
                self.frame_of(place, "").add(metrics)
                for key, value in metrics.items():
                    if is_summed(key, value):
                        self.root.metrics.setdefault(key, 0)
        for timing in timings:
            if not timing.place.hidden:
                device = {"device_id": str(timing.device), "device_type": timing.device_type}
                self.frame_of(timing.place, timing.name).add({"count": 1, "time (ns)": timing.nanoseconds, **device})
                self.devices.add((timing.device_type, timing.device))

    def write(self) -> None:
        devices: dict[str, dict[str, Any]] = {}
        for kind, index in sorted(self.devices):
            devices.setdefault(kind, {})[str(index)] = _described(kind, index)
        generated.write(self.file, json.dumps([self.root.record(), devices], indent=1))


def _described(kind: str, index: int) -> dict[str, Any]:
    """Returns what a device can do, under the names that proton-viewer knows."""
    if kind != "CUDA":
        return {}
    import torch

    found: Any = torch.cuda.get_device_properties(index)
    return {
        "arch": f"{found.major}{found.minor}",
        "num_sms": found.multi_processor_count,
        "clock_rate": found.clock_rate,
        "memory_clock_rate": found.memory_clock_rate,
        "bus_width": found.memory_bus_width,
    }


class _Sessions:
    """The sessions of the process. What is recorded is shared out whenever it changes which of them are active."""

    def __init__(self) -> None:
        self.by_number: dict[int, Session] = {}
        self.recording: Recording | None = None

    def chosen(self, number: int | None) -> list[Session]:
        """Returns one session, or all of them."""
        if number is None:
            return list(self.by_number.values())
        if number not in self.by_number:
            raise ProfilerError(
                f"Session has not been initialized: {number}", cure="use what kernelpack.profiler.start returned"
            )
        return [self.by_number[number]]

    def switch(self, change: Callable[[], object]) -> None:
        """Changes which sessions there are or which of them are active."""
        if self.recording is not None:
            recording, self.recording = self.recording, None
            timings = recording.stop()
            for session in self.by_number.values():
                if session.active:
                    session.take(recording, timings)
        change()
        active = [session for session in self.by_number.values() if session.active]
        if active:
            self.recording = Recording(described=any(session.described for session in active))


SESSIONS = _Sessions()


def start(
    name: str | None = None,
    *,
    context: str | None = "shadow",
    data: str | None = "tree",
    backend: str | None = None,
    mode: Any = None,
    hook: str | None = None,
) -> int:
    """Starts a session, which is active. Returns its number.

    `finalize` writes it to NAME.hatchet. With `hook="triton"`, kernels are called as the function `launch_metadata` of their `jit` says,
    and have its other entries (`flops16`, `bytes`, ...) as metrics. torch.profiler measures: of GPUs every kernel that runs, of CPUs every
    launch and torch's operators. It runs once a process: a program that uses it otherwise must not do so meanwhile. Raises
    ProfilerError for what only Triton's profiler offers, and BuildError where NAME.hatchet is a file that is no profile.
    """
    given = {"context": context, "data": data, "backend": backend, "mode": mode, "hook": hook}
    known = {"context": ("shadow",), "data": ("tree",), "hook": ("triton",), "backend": ("cupti",)}
    for option, value in given.items():
        if value is not None and value not in known.get(option, ()):
            raise ProfilerError(
                f"kernelpack.profiler.start: {option}={value!r} is not supported",
                cure=f"leave {option} out; torch.profiler shows Python's stack, and timelines (export_chrome_trace)",
            )
    session = Session(name or DEFAULT_PROFILE_NAME, hook is not None)
    generated.check(session.file)
    number = next(_NUMBERS)
    SESSIONS.switch(lambda: SESSIONS.by_number.update({number: session}))
    return number


def activate(session: int | None = None) -> None:
    """Records again for a session, or for all of them."""
    _set_active(session, True)


def deactivate(session: int | None = None, flushing: bool = False) -> None:
    """Stops recording for a session, or for all of them, until `activate`. What was recorded is kept; it always is complete, so that
    `flushing` changes nothing."""
    _set_active(session, False)


def _set_active(number: int | None, active: bool) -> None:
    changed = [session for session in SESSIONS.chosen(number) if session.active != active]

    def change() -> None:
        for session in changed:
            session.active = active

    if changed:
        SESSIONS.switch(change)


def finalize(session: int | None = None, output_format: str | None = "") -> None:
    """Ends a session, or all of them, and writes NAME.hatchet."""
    if output_format not in (None, "", "hatchet"):
        raise ProfilerError(
            f"profiles are not written as {output_format!r}", cure="leave output_format out, for hatchet's JSON"
        )
    ended = SESSIONS.chosen(session)
    left = {number: other for number, other in SESSIONS.by_number.items() if other not in ended}
    SESSIONS.switch(lambda: setattr(SESSIONS, "by_number", left))
    for each in ended:
        each.write()


@overload
def profile(func: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def profile(**options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def profile(func: Callable[..., Any] | None = None, /, **options: Any) -> Callable[..., Any]:
    """Decorator: each call of a function is a session, with the options of `start`. `finalize` writes them."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            session = start(**options)
            try:
                return function(*args, **kwargs)
            finally:
                deactivate(session)

        return call

    return decorate if func is None else decorate(func)
