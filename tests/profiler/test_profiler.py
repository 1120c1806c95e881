"""kernelpack.profiler: which scopes kernels belong to, their metrics, and what sessions write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
import kernelpack.profiler as profiler
from kernelpack.errors import BuildError, ProfilerError
from kernelpack.profiler.recording import MARK, LaunchSite, timings

SIZE = 256


@kp.jit(
    launch_metadata=lambda grid, kernel, args: {"name": f"add [{args['n']}]", "bytes": 12 * args["n"], "ones": args["x"].sum()}
)
def add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets) + tl.load(y + offsets))


@kp.jit
def double(x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets) * 2)


ONES, OUT = torch.ones(SIZE), torch.zeros(SIZE)


def run_add() -> None:
    add[(1,)](ONES, ONES, OUT, SIZE, BLOCK=SIZE)


def run_double() -> None:
    double[(1,)](OUT, SIZE, BLOCK=SIZE)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "profile.hatchet"
    profiler.finalize()


def start(file: Path, **options: Any) -> int:
    return profiler.start(str(file.with_suffix("")), **options)


def written(file: Path) -> dict[str, dict[str, Any]]:
    """Finalizes all sessions. Returns the metrics of each frame of a file, by its path; ROOT's path is empty."""
    profiler.finalize()
    root, devices = json.loads(file.read_text())
    assert set(devices) <= {"CPU"}
    found: dict[str, dict[str, Any]] = {}

    def visit(frame: dict[str, Any], path: str) -> None:
        found[path] = frame["metrics"]
        for child in frame["children"]:
            visit(child, f"{path}/{child['frame']['name']}")

    visit(root, "")
    return found


def test_launches_belong_to_the_scopes_around_them(file: Path) -> None:
    start(file)
    run_double()
    with profiler.scope("outer"):
        run_add()
        with profiler.scope("inner"):
            run_add()
            run_add()
        run_double()
    frames = written(file)
    counts = {path: metrics["count"] for path, metrics in frames.items() if "time (ns)" in metrics}
    assert counts == {"": 0, "/double": 1, "/outer/add": 1, "/outer/inner/add": 2, "/outer/double": 1}
    assert all(metrics["time (ns)"] > 0 for path, metrics in frames.items() if path.endswith(("add", "double")))


def test_operators_of_torch_are_recorded_without_those_that_they_call(file: Path) -> None:
    start(file)
    with profiler.scope("torch"):
        torch.softmax(ONES, 0)
    frames = written(file)
    assert frames["/torch/aten::softmax"]["count"] == 1
    assert "/torch/aten::_softmax" not in frames


def test_gradients_belong_to_the_scope_that_asks_for_them(file: Path) -> None:
    x = torch.ones(8, requires_grad=True)
    y = (x * x).sum()
    start(file)
    with profiler.scope("backward"):
        y.backward()
    assert [path for path in written(file) if path.startswith("/backward/")]


def test_launch_metadata_names_kernels_where_the_session_asks_for_it(file: Path) -> None:
    start(file, hook="triton")
    plain = file.with_name("plain.hatchet")
    start(plain)
    run_add()
    run_add()
    frames = written(file)
    assert set(frames) == {"", f"/add [{SIZE}]"}  # the sum that launch_metadata computes is no part of the program
    assert frames[f"/add [{SIZE}]"]["bytes"] == 2 * 12 * SIZE
    assert frames[f"/add [{SIZE}]"]["ones"] == 2 * SIZE
    assert frames[f"/add [{SIZE}]"]["count"] == 2
    assert frames[""].keys() == {"count", "time (ns)", "bytes", "ones"}
    others = written(plain)
    assert set(others) == {"", "/add"}
    assert "bytes" not in others["/add"]


def test_metrics_of_scopes(file: Path) -> None:
    start(file)
    for _ in range(2):
        with profiler.scope("a", {"flops": 3.0, "peak (pty)": 7, "own (exc)": 1, "parts": [1, 2], "tensor": torch.tensor(5)}):
            pass
    profiler.enter_scope("b")
    profiler.exit_scope("b", metrics={"late": 1})
    frames = written(file)
    assert frames["/a"] == {"flops": 6.0, "peak": 7, "own": 2, "parts": [2, 4], "tensor": 10}
    assert frames["/b"] == {"late": 1}
    assert set(frames[""]) == {"count", "time (ns)", "flops", "parts", "tensor", "late"}


def test_nothing_is_recorded_while_a_session_is_not_active(file: Path) -> None:
    session = start(file)
    profiler.deactivate(session)
    with profiler.scope("off", {"flops": 1}):
        run_add()
    profiler.activate(session)
    run_double()
    profiler.activate(session)
    run_double()
    frames = written(file)
    assert set(frames) == {"", "/double"}
    assert frames["/double"]["count"] == 2


def test_scopes_that_were_entered_before_a_session_count(file: Path) -> None:
    with profiler.scope("outer"):
        start(file)
        run_add()
        profiler.deactivate()
        profiler.activate()
        run_add()
    run_add()
    frames = written(file)
    assert frames["/outer/add"]["count"] == 2
    assert frames["/add"]["count"] == 1


def test_sessions_record_side_by_side(file: Path) -> None:
    first = start(file)
    run_add()
    later = file.with_name("later.hatchet")
    second = start(later)
    assert second == first + 1
    run_double()
    profiler.finalize(first)
    assert not later.exists()
    run_double()
    assert {path: m["count"] for path, m in written(later).items()} == {"": 0, "/double": 2}
    assert set(json.loads(file.read_text())[0]["metrics"]) == {"count", "time (ns)"}


def test_functions_are_scopes_and_sessions(file: Path) -> None:
    @profiler.scope("half", {"calls": 1})
    def half(n: int) -> None:
        run_double()
        if n:
            half(n - 1)

    @profiler.profile(name=str(file.with_suffix("")))
    def whole() -> int:
        half(1)
        return 5

    assert whole() == 5
    half(0)
    frames = written(file)
    assert {path for path in frames if path.endswith("double")} == {"/half/double", "/half/half/double"}
    assert frames["/half"]["calls"] == frames["/half/half"]["calls"] == 1


def test_the_time_on_the_host_is_the_scopes_own(file: Path) -> None:
    start(file)
    with profiler.cpu_timed_scope("timed"):
        run_add()
    frames = written(file)
    assert frames["/timed"]["cpu_time (ns)"] > frames["/timed/add"]["time (ns)"] > 0
    assert "cpu_time (ns)" not in frames[""]


def test_without_sessions_scopes_change_nothing(file: Path) -> None:
    with profiler.scope("nothing", {"flops": 1}):
        run_add()
    profiler.finalize()
    assert not file.exists()


@pytest.mark.parametrize(
    "option",
    [{"context": "python"}, {"data": "trace"}, {"backend": "instrumentation"}, {"mode": "pcsampling"}, {"hook": "mine"}],
)
def test_what_is_not_offered_is_refused(option: dict[str, str]) -> None:
    with pytest.raises(ProfilerError, match="is not supported"):
        profiler.start(**option)


def test_mistakes_are_named() -> None:
    with pytest.raises(ProfilerError, match="Session has not been initialized: 100000"):
        profiler.activate(100000)
    profiler.enter_scope("one")
    with pytest.raises(ProfilerError, match="exit_scope\\('two'\\): the innermost is 'one'"):
        profiler.exit_scope("two")
    profiler.exit_scope()
    with pytest.raises(ProfilerError, match="there is none"):
        profiler.exit_scope()
    with pytest.raises(ProfilerError, match="msgpack"):
        profiler.finalize(output_format="hatchet_msgpack")


@dataclass(frozen=True)
class Event:
    """An event as kineto has them: `link` is the number of the operator that a kernel was launched in."""

    on: str
    called: str
    start: int
    length: int
    number: int = 0
    link: int = 0
    thread: int = 1
    annotation: bool = False

    def __getattr__(self, name: str) -> Any:
        values = {
            "name": self.called, "device_type": f"DeviceType.{self.on}", "device_index": 0, "start_ns": self.start,
            "duration_ns": self.length, "correlation_id": self.number, "linked_correlation_id": self.link,
            "start_thread_id": self.thread, "is_user_annotation": self.annotation,
        }  # fmt: skip
        return lambda: values[name]


def test_kernels_of_a_gpu_belong_where_they_were_launched() -> None:
    root, forward, launch = LaunchSite(()), LaunchSite(("forward",)), LaunchSite(("forward",), "add", "add")
    events = [
        Event("CPU", f"{MARK}0", 0, 10, number=1),
        Event("CPU", f"{MARK}1", 10, 90, number=2),
        Event("CPU", "aten::mm", 20, 10, number=3),
        Event("CPU", "cudaLaunchKernel", 25, 2, number=70, link=3),
        Event("CPU", f"{MARK}2", 40, 10, number=4),
        Event("CPU", "cuLaunchKernelEx", 42, 2, number=2, link=4),  # its number is that of a mark
        Event("CPU", "aten::mul", 60, 5, number=5, thread=2),  # of a thread that computes gradients
        Event("CPU", "cuLaunchKernel", 80, 5, number=72),
        Event("CUDA", "product", 1000, 7, number=70, link=3),
        Event("CUDA", "add_kernel", 1010, 8, number=2, link=4),
        Event("CUDA", "mul_kernel", 1020, 9, number=71, link=5),
        Event("CUDA", "unlinked", 1030, 3, number=72),
        Event("CUDA", "region", 1000, 50, annotation=True),
    ]
    found = [
        (timing.place, timing.name, timing.nanoseconds) for timing in timings([root, forward, launch], events, on_gpu=True)
    ]
    assert found == [(forward, "product", 7), (launch, "add_kernel", 8), (forward, "mul_kernel", 9), (forward, "unlinked", 3)]


def test_a_file_that_is_no_profile_is_refused_before_anything_is_measured(file: Path) -> None:
    start(file)
    profiler.finalize()
    start(file)  # the profile of an earlier run is replaced
    profiler.finalize()
    file.write_text("my notes")
    with pytest.raises(BuildError, match=f"{file} exists, and kernelpack did not write it"):
        start(file)
    file.unlink()
    file.symlink_to(file.with_name("notes.txt"))
    with pytest.raises(BuildError, match=f"{file} is a link"):
        start(file)
    assert not file.with_name("notes.txt").exists()
