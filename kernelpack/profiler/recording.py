"""What torch's profiler sees from one change of the active sessions to the next: kernels, by the scopes that they were launched in."""

from __future__ import annotations

import bisect
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelpack import knobs
from kernelpack.knobs.hooks import LazyDict

MARK = "kernelpack profiler "
_OF_THE_API = re.compile(r"cu(da)?[A-Z]")
"""Calls of CUDA's API. They are events of the CPU that have numbers of their own, those of the kernels which they launch."""


@dataclass(frozen=True)
class LaunchSite:
    """Where work belongs: the names of the scopes around it, and the launch. A launch has the kernel's name, and the one that its
    `launch_metadata` gives it. Work of `launch_metadata` itself is `hidden`."""

    scopes: tuple[str, ...]
    kernel: str = ""
    described: str = ""
    hidden: bool = False


@dataclass(frozen=True)
class Timing:
    """A kernel of a GPU that ran; on CPUs a launch, or an operator of torch that no other one called."""

    place: LaunchSite
    name: str
    nanoseconds: int
    device_type: str
    device: int


class _Thread(threading.local):
    """A thread's scopes, and the marks of torch's profiler that it is in: of its place, and of a launch."""

    def __init__(self) -> None:
        self.scopes: list[str] = []
        self.mark: Any = None
        self.launch: Any = None


HERE = _Thread()


class Recording:
    """Records until `stop`. With `described`, launches are asked for their `launch_metadata`."""

    def __init__(self, *, described: bool) -> None:
        import torch
        from torch.profiler import ProfilerActivity

        self.described = described
        self.metrics: list[tuple[LaunchSite, Mapping[str, Any]]] = []
        """Given with scopes and by `launch_metadata`, where they belong."""
        self._places: list[LaunchSite] = []
        self._on_gpu = torch.cuda.is_available()
        activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * self._on_gpu]
        self._profiler: Any = torch.profiler.profile(activities=activities)
        self._profiler.start()
        self.move()
        knobs.runtime.launch_enter_hook.add(self._enter)
        knobs.runtime.launch_exit_hook.add(self._exit)

    def move(self) -> None:
        """Notes that this thread's scopes have changed."""
        self._leave()
        HERE.mark = self._mark(LaunchSite(tuple(HERE.scopes)))

    def stop(self) -> list[Timing]:
        """Ends the recording. Returns what ran."""
        knobs.runtime.launch_enter_hook.remove(self._enter)
        knobs.runtime.launch_exit_hook.remove(self._exit)
        self._leave()
        self._profiler.stop()
        return list(timings(self._places, self._profiler.profiler.kineto_results.events(), on_gpu=self._on_gpu))

    def _mark(self, place: LaunchSite) -> Any:
        """Enters a mark and returns it. Unlike torch.profiler.record_function it counts as an operator, to which the kernels belong that are
        launched inside of it."""
        from torch._C._profiler import _RecordFunctionFast

        self._places.append(place)
        mark = _RecordFunctionFast(f"{MARK}{len(self._places) - 1}")
        mark.__enter__()
        return mark

    @staticmethod
    def _leave() -> None:
        if HERE.mark is not None:
            HERE.mark.__exit__(None, None, None)
            HERE.mark = None

    def _enter(self, launch: LazyDict) -> None:
        scopes = tuple(HERE.scopes)
        name, described = launch.data["name"], {}
        if self.described:
            hidden = self._mark(LaunchSite(scopes, hidden=True))
            described = launch.get()
            hidden.__exit__(None, None, None)
        place = LaunchSite(scopes, name, described.get("name", name))
        self.metrics.append(
            (place, {key: value for key, value in described.items() if key not in ("name", "function", "stream")})
        )
        HERE.launch = self._mark(place)

    def _exit(self, launch: LazyDict) -> None:
        if HERE.launch is not None:
            HERE.launch.__exit__(None, None, None)
            HERE.launch = None


def timings(places: Sequence[LaunchSite], events: Sequence[Any], *, on_gpu: bool) -> Iterator[Timing]:
    """Yields what ran, from kineto's events. The mark of `places[n]` is called `MARK` and n."""
    on_cpu = [event for event in events if _device(event) == "CPU"]
    calls = _Calls(places, [event for event in on_cpu if not _OF_THE_API.match(event.name())])
    if not on_gpu:
        for place, name, nanoseconds in calls.outermost:
            yield Timing(place, name, nanoseconds, "CPU", 0)
    launched = {event.correlation_id(): event.start_ns() for event in on_cpu if _OF_THE_API.match(event.name())}
    for event in events:
        if _device(event) == "CPU" or event.is_user_annotation():
            continue
        since = launched.get(event.correlation_id(), event.start_ns())
        place = calls.place_of.get(event.linked_correlation_id()) or calls.at(since)
        yield Timing(place, event.name(), event.duration_ns(), _device(event), event.device_index())


def _device(event: Any) -> str:
    return str(event.device_type()).rpartition(".")[2]


class _Calls:
    """Events of the CPU, by the marks around them.

    A thread without marks, as those that compute gradients, works for the first one, which started the recording.
    """

    def __init__(self, places: Sequence[LaunchSite], events: Sequence[Any]) -> None:
        self.place_of: dict[int, LaunchSite] = {}
        """By correlation id."""
        self.outermost: list[tuple[LaunchSite, str, int]] = []
        self._places = places
        threads: dict[int, list[Any]] = {}
        for event in events:
            threads.setdefault(event.start_thread_id(), []).append(event)
        first = next((event.start_thread_id() for event in events if event.name() == f"{MARK}0"), 0)
        moves = [(event.start_ns(), self._marked(event)) for event in threads.get(first, ())]
        outer = [(start, place) for start, place in moves if place is not None and not place.kernel and not place.hidden]
        outer.sort(key=lambda move: move[0])
        self._moves, self._since = [start for start, _ in outer], [place for _, place in outer]
        for found in threads.values():
            self._nest(sorted(found, key=lambda event: (event.start_ns(), -event.duration_ns())))

    def _marked(self, event: Any) -> LaunchSite | None:
        name = event.name()
        return self._places[int(name.removeprefix(MARK))] if name.startswith(MARK) else None

    def _nest(self, events: list[Any]) -> None:
        around: list[tuple[int, LaunchSite, bool]] = []  # when it ends, its place, whether it is an operator
        for event in events:
            while around and around[-1][0] <= event.start_ns():
                around.pop()
            marked = self._marked(event)
            place = marked or (around[-1][1] if around else self.at(event.start_ns()))
            self.place_of[event.correlation_id()] = place
            inside = bool(around) and around[-1][2]
            if not inside and not place.hidden and (marked is None or marked.kernel):
                self.outermost.append((place, event.name(), event.duration_ns()))
            around.append((event.start_ns() + event.duration_ns(), place, inside or marked is None or bool(marked.kernel)))

    def at(self, time: int) -> LaunchSite:
        """Returns the place of the first thread at a time."""
        index = bisect.bisect_right(self._moves, time) - 1
        return self._since[index] if index >= 0 else LaunchSite(())
