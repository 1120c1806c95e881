"""A process that compiles ttir text to images: LLVM holds a lock, and may kill the process it runs in."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import IO, Any

from kernelpack.backends.base import Fact, Options, backend_of
from kernelpack.compiler.garbage import collections_put_off
from kernelpack.errors import BuildError
from kernelpack.ir.core import Operation, entry_function
from kernelpack.target import Target


@dataclass(frozen=True)
class CompileJob:
    """One kernel to compile: its ttir as the front end made it, and the symbol that it gets."""

    name: str
    entry: str
    ttir: str
    target: Target
    options: Options
    facts: tuple[Fact, ...]
    keep_stages: bool = False


@collections_put_off()
def compile_job(job: CompileJob) -> Any:
    """Compiles a job in this process and returns the CompiledKernel, without its stages unless they are asked for."""
    from kernelpack.compiler import compile_ttir

    backend_of(job.target)  # makes the types and encodings known that its part of the language puts into ttir
    module = _optimised(job.ttir).clone()
    entry_function(module).attributes["sym_name"] = job.entry
    return compile_ttir(module, job.target, job.options, job.facts, keep_stages=job.keep_stages)


@functools.lru_cache(maxsize=1)  # a process gets the jobs that share ttir one behind the other
def _optimised(ttir: str) -> Operation:
    from kernelpack.compiler import optimise_ttir
    from kernelpack.ir.text import parse_module

    return optimise_ttir(parse_module(ttir))


def compile_all(jobs: Iterable[CompileJob], processes: int, done: Callable[[CompileJob, Any], None]) -> list[Any]:
    """Compiles jobs in parallel processes and returns a CompiledKernel, or the exception, for each, in order.

    The processes start with the first jobs, while the iterable makes the others. Neighbours with the same ttir go to one process,
    which reads it once. `done` is called with each result, one at a time, from any thread. A process that dies gives a BuildError
    that names its job.
    """
    results: dict[int, Any] = {}
    queue: SimpleQueue[list[tuple[int, CompileJob]] | None] = SimpleQueue()
    lock = threading.Lock()
    alive: list[_Worker] = []
    broken_off = threading.Event()

    def taken() -> Iterator[tuple[int, CompileJob]]:
        while (group := queue.get()) is not None:
            for numbered in group:
                if broken_off.is_set():
                    return
                yield numbered

    def serve() -> None:
        worker: _Worker | None = None
        for index, job in taken():
            if worker is None:
                worker = _Worker()
                alive.append(worker)
            result = worker.run(job)
            if worker.dead:
                worker = None
            with lock:
                results[index] = result
                try:
                    done(job, result)
                except Exception as error:  # e.g. a full disk: the caller's to judge, as what compiling raises
                    results[index] = error
        if worker is not None:
            worker.close()

    threads = [threading.Thread(target=serve) for _ in range(processes)]
    for thread in threads:
        thread.start()
    try:
        for _, group in itertools.groupby(enumerate(jobs), key=lambda numbered: numbered[1].ttir):
            queue.put(list(group))
        _finish(queue, threads)
    except BaseException:  # also an interrupt: neither what waits nor what is being compiled is of use any more
        broken_off.set()
        while not queue.empty():
            with contextlib.suppress(Empty):
                queue.get_nowait()
        for process in alive:
            process.kill()
        _finish(queue, threads)
        raise
    return [results[index] for index in range(len(results))]


def _finish(queue: SimpleQueue[Any], threads: Iterable[threading.Thread]) -> None:
    for _ in threads:
        queue.put(None)
    for thread in threads:
        thread.join()


class _Worker:
    """The parent's end of a compile process."""

    def __init__(self) -> None:
        self.dead = False
        environment = {**os.environ, "KERNELPACK_LOAD_LIBRARY": "0"}
        environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kernelpack.opgen.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )

    def run(self, job: CompileJob) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            _send(self.process.stdin, job)
            return _receive(self.process.stdout)
        except (EOFError, BrokenPipeError):
            self.dead = True
            assert self.process.stderr is not None
            said = self.process.stderr.read().decode(errors="replace").strip()
            code = self.process.wait()
            return BuildError(
                f"the compiler process died (exit status {code}) while it compiled {job.name} for {job.target}\n{said[-2000:]}",
                cure="this is a defect of the compiler; please report it with the text of kernelpack inspect",
            )

    def kill(self) -> None:
        self.process.kill()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


def _send(stream: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> Any:
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError
    (size,) = struct.unpack("<Q", head)
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)


def main() -> None:
    """Serves jobs from stdin until it ends. What compilers print goes to stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which ends its processes
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            job = _receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            result = compile_job(job)
        except Exception as error:  # everything is the parent's to judge
            result = error
        _send(replies, result)


if __name__ == "__main__":
    main()
