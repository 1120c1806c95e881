"""Times contenders in turns: each in a process that suits it, one at a time, over and over; what counts is the median."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import statistics
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol
from unittest import mock

import torch

import kernelpack
from kernelpack.errors import BuildError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

OURS = "kernelpack"
FAST_MKL = "fast-mkl torch"
"""Stock torch in a process whose MKL takes its fast path also on CPUs of other makers (on Intel's it always does)."""
INDUCTOR_TRITON = "inductor, Triton"
"""torch.compile in a process in which `import triton` is PyPI's: KERNELPACK_AS_TRITON is 0 there."""

_TURN = 0.04  # seconds that a turn of short calls lasts: far above the clock's and the pipe's granularity
_PAUSE = {"cpu": 0.005, "cuda": 0.05}  # idle threads of the last turn stop spinning; the GPU's clocks recover
_ROTATE = 256 << 20  # bytes of input sets on a GPU: several times its L2 cache
_GRAPH_CALLS = 200
"""At most so many calls are captured: each keeps the host busy for some 20 us, once."""
_TOLERANCE = {
    torch.float32: 2e-3,
    torch.float16: 1e-2,
    torch.bfloat16: 2e-2,
    torch.int64: 0.0,
}  # of the largest element: a sanity check, no more


@dataclass(frozen=True)
class Case:
    """One thing to time: what `prepare` makes of `arguments`. One call does `work`, in units of `unit` times seconds.

    `op` is the name in torch.ops.kernelpack that it needs. With `graph` a turn's calls on a GPU are captured once and replayed,
    so that no host is timed, however short the kernels are.
    """

    name: str
    unit: str
    work: float
    device: str
    peers: tuple[str, ...]
    op: str = ""
    threads: int = 1
    arguments: Mapping[str, Any] = field(default_factory=dict)
    graph: bool = False


def cpu_threads() -> list[int]:
    """Returns the numbers of threads that benchmarks on CPUs run with here."""
    return [count for count in (1, 2, 4, 8, 16) if count <= (os.cpu_count() or 1)]


Result = torch.Tensor | tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Prepared:
    """What a process calls: `inputs` makes one set of arguments, `contenders` take it and return their result.

    A contender that computes something else than kernelpack (a copy) returns None. Results are compared with those of
    `reference`, or without one with each other.
    """

    inputs: Callable[[], tuple[Any, ...]]
    contenders: Mapping[str, Callable[..., Result | None]]
    reference: Callable[..., Result] | None = None


class Subject(Protocol):
    """What a file of benchmarks holds."""

    def cases(self, device: str, quick: bool) -> Sequence[Case]: ...

    def prepare(self, case: Case) -> Prepared: ...


# ---- the process that measures ----


class Stopwatch:
    """The inputs and contenders of one case, in this process."""

    def __init__(self, subject: Subject, case: Case) -> None:
        torch.set_num_threads(case.threads)
        torch.manual_seed(0)
        prepared = subject.prepare(case)
        self.case, self.prepared, self.contenders = case, prepared, prepared.contenders
        self.graphs: dict[tuple[str, int], torch.cuda.CUDAGraph] = {}
        self.sets = [prepared.inputs()]
        if case.device == "cuda":  # calls in a row would find a small input in the L2 cache
            size = sum(value.nbytes for value in self.sets[0] if isinstance(value, torch.Tensor))
            self.sets += [prepared.inputs() for _ in range(min(15, _ROTATE // max(size, 1)))]

    def check(self, names: Sequence[str]) -> None:
        """Raises AssertionError for a contender that does not compute what the reference, or else the first one, does."""
        expected: list[torch.Tensor] | None = None
        for name in names:
            inputs = self.sets[0]
            if self.prepared.reference is not None:  # of its own: nobody finds another's result in an output
                inputs = self.prepared.inputs()
                expected = _tensors(self.prepared.reference(*inputs))
            result = self.contenders[name](*inputs)
            if result is None:
                continue
            if expected is None:
                expected = [tensor.clone() for tensor in _tensors(result)]  # two contenders may write to the same output
                continue
            for tensor, right in zip(_tensors(result), expected, strict=True):
                assert tensor.shape == right.shape, f"{self.case.name}: {name} gives {tensor.shape}, expected {right.shape}"
                error = (tensor.float() - right.float()).abs().max().item()
                most = _TOLERANCE[tensor.dtype] * right.abs().max().item()
                if not error <= most:
                    other = names[0] if self.prepared.reference is None else "the reference"
                    raise AssertionError(f"{self.case.name}: {name} differs from {other} by {error:.3g}, allowed is {most:.3g}")

    def seconds(self, name: str, calls: int) -> float:
        """Returns the time of one of `calls` calls in a row, after one that wakes threads and fills caches."""
        time.sleep(_PAUSE[self.case.device])
        call = self.contenders[name]
        call(*self.sets[-1])
        turns = [self.sets[index % len(self.sets)] for index in range(calls)]
        if self.case.device == "cuda":
            if not self.case.graph:
                return _device_seconds(call, turns)
            turns = turns[:_GRAPH_CALLS]
            key = (name, len(turns))
            if key not in self.graphs:
                self.graphs[key] = _capture(call, turns)
            return _device_seconds(self.graphs[key].replay, [()]) / len(turns)
        start = time.perf_counter()
        for inputs in turns:
            call(*inputs)
        return (time.perf_counter() - start) / calls


def _tensors(result: Result) -> list[torch.Tensor]:
    return list(result) if isinstance(result, tuple) else [result]


def _capture(call: Callable[..., Any], turns: Sequence[tuple[Any, ...]]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for inputs in turns:
            call(*inputs)
    return graph


def _device_seconds(call: Callable[..., Any], turns: Sequence[tuple[Any, ...]]) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000)  # about a millisecond: the calls are queued after it, so that no gap of the host is timed
    start.record()
    for inputs in turns:
        call(*inputs)
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3 / len(turns)


def serve(connection: Connection, subject_name: str, library: str | None) -> None:
    """Answers method calls of a Process until its pipe closes."""
    stopwatch: Stopwatch | None = None
    while True:
        try:
            method, *arguments = connection.recv()
        except EOFError:
            return
        try:
            if method == "prepare":
                stopwatch = None  # frees the last case's memory first
                load_library(library, arguments[0].op)
                stopwatch = Stopwatch(importlib.import_module(subject_name), *arguments)
                answer: Any = None
            else:
                answer = getattr(stopwatch, method)(*arguments)
        except BuildError as error:
            answer = error
        except Exception:
            answer = RuntimeError(traceback.format_exc())
        connection.send(answer)


def load_library(library: str | None, op: str) -> None:
    """Loads an op library from a folder instead of kernelpack's own. Raises BuildError if torch.ops.kernelpack lacks `op`."""
    if library is not None:
        kernelpack.load(library)
    if op and not hasattr(torch.ops.kernelpack, op):
        raise BuildError(f"torch.ops.kernelpack.{op} does not exist", cure="build the op library: make build")


# ---- the process that directs ----


class Process:
    """A measuring process, with some variables of the environment changed."""

    def __init__(self, subject_name: str, library: str | None, changes: Mapping[str, str]) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, subject_name, library), daemon=True)
        own_library = {} if library is None else {"KERNELPACK_LOAD_LIBRARY": "0"}
        with mock.patch.dict(os.environ, {**own_library, **changes}):
            self._process.start()
        theirs.close()

    def call(self, method: str, *arguments: Any) -> Any:
        """Runs a method of the process's Stopwatch. Raises BuildError, or RuntimeError with the other process's traceback."""
        self._connection.send((method, *arguments))
        try:
            answer = self._connection.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError(f"the measuring process died with exit status {self._process.exitcode}") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self._connection.close()
        self._process.join()


@contextmanager
def processes(subject_name: str, library: str | None, peers: Sequence[str]) -> Iterator[Callable[[str], Process]]:
    """Starts a process for kernelpack and stock peers, and one each for peers that need their own; gives the one for a name."""
    with ExitStack() as stack:
        plain = Process(subject_name, library, {})
        stack.callback(plain.close)
        own: dict[str, Process] = {}
        if FAST_MKL in peers:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            own[FAST_MKL] = Process(subject_name, library, {"LD_PRELOAD": preloaded(_fast_mkl_library(Path(folder)))})
        if INDUCTOR_TRITON in peers:
            own[INDUCTOR_TRITON] = Process(subject_name, library, {"KERNELPACK_AS_TRITON": "0"})
        for process in own.values():
            stack.callback(process.close)
        yield lambda name: own.get(name, plain)


def preloaded(library: Path) -> str:
    return " ".join([str(library), *os.environ.get("LD_PRELOAD", "").split()])


def _fast_mkl_library(folder: Path) -> Path:
    """Compiles the answer that MKL's dispatcher wants to hear before it takes its fast path, whatever the CPU's maker."""
    source, library = folder / "fast_mkl.c", folder / "libfast_mkl.so"
    source.write_text("int mkl_serv_intel_cpu_true(void) { return 1; }\n")
    subprocess.run(["g++", "-x", "c", "-shared", "-fPIC", "-O2", "-o", str(library), str(source)], check=True)
    return library


def measure(case: Case, process_of: Callable[[str], Process], rounds: int) -> dict[str, float]:
    """Returns the median seconds of a call of kernelpack and of each peer.

    They take turns: each round times everybody, and each starts with another one.
    """
    names = [OURS, *case.peers]
    used = {name: process_of(name) for name in names}
    for process in dict.fromkeys(used.values()):
        process.call("prepare", case)
        process.call("check", [name for name in names if used[name] is process])
    calls = {name: max(1, round(_TURN / max(used[name].call("seconds", name, 1), 1e-7))) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            times[name].append(used[name].call("seconds", name, min(calls[name], 2000)))
    return {name: statistics.median(seconds) for name, seconds in times.items()}
