"""Processes that compile kernels: LLVM holds a lock, and may kill the process it runs in."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any, NoReturn

from kernelpack.backends.installed import backend_of
from kernelpack.compiled import CompiledKernel
from kernelpack.compiler.stages import compile_ttir, optimise_ttir
from kernelpack.errors import BuildError
from kernelpack.facts import Fact
from kernelpack.ir.core import Operation, entry_function
from kernelpack.options import Options
from kernelpack.process_wide import collections_put_off
from kernelpack.target import Target


@dataclass(frozen=True)
class CompileJob:
    """One kernel to compile: what makes its ttir (jobs that share this share the ttir), and the symbol that it gets."""

    name: str
    entry: str
    make_ttir: Callable[[], Operation]
    target: Target
    options: Options
    facts: tuple[Fact, ...]
    apart: tuple[Target, ...] = ()
    """The targets whose code it never has."""
    keep_stages: bool = False
    until: str | None = None
    """The last stage that is asked for; None for the image."""


@dataclass(frozen=True)
class FrontEndError:
    """What making ttir raised: the source is wrong, whatever the target."""

    error: Exception


@collections_put_off
def compile_job(job: CompileJob) -> Any:
    """Compiles a job in this process and returns the CompiledKernel, without its stages unless they are asked for. Where its code is that of
    another target, it bears that one's name, and is compiled once for both."""
    optimised = _optimised(job.make_ttir)
    if isinstance(optimised, FrontEndError):
        return optimised
    if job.keep_stages or job.until is not None:
        return _compiled(job, optimised)
    code = backend_of(job.target).code_target(job.target, optimised)
    code = job.target if code in job.apart else code
    of_target = job.entry.endswith(job.target.slug)
    symbol = job.entry.removesuffix(job.target.slug) + code.slug if of_target else job.entry
    key = (job.make_ttir, symbol, code, job.options, job.facts)
    if key not in _MADE:
        kernel = _compiled(replace(job, entry=symbol, target=code), optimised)
        for known in [known for known in _MADE if known[0] is not job.make_ttir]:
            del _MADE[known]
        _MADE[key] = kernel
    return replace(_MADE[key], target=job.target)


_MADE: dict[tuple[object, ...], CompiledKernel] = {}
"""The kernels that this process compiled of the last ttir."""


def _compiled(job: CompileJob, optimised: Operation) -> CompiledKernel:
    module = optimised.clone()
    entry_function(module).attributes["sym_name"] = job.entry
    return compile_ttir(module, job.target, job.options, job.facts, keep_stages=job.keep_stages, until=job.until)


@functools.lru_cache(maxsize=1)  # a process gets the jobs that share ttir one after the other
def _optimised(make_ttir: Callable[[], Operation]) -> Operation | FrontEndError:
    try:
        module = make_ttir()
    except Exception as error:  # everything is the parent's to judge
        return FrontEndError(error)
    return optimise_ttir(module)


def compile_all(
    jobs: Sequence[CompileJob], processes: int, done: Callable[[CompileJob, Any], None], *, go_on: bool = False
) -> list[Any]:
    """Compiles jobs in parallel processes and returns a CompiledKernel, or the exception, for each, in order.

    The processes are forks of this one: sources are imported once. Neighbours with the same ttir go to one process, which makes it
    once. `done` is called with each result, one at a time, from any thread. A process that dies gives a BuildError that names its
    job. What making ttir raises ends all, unless they `go_on`: then it is the result of its jobs.
    """
    results: dict[int, Any] = {}
    wrong: dict[int, Exception] = {}
    queue: SimpleQueue[list[int] | None] = SimpleQueue()
    lock = threading.Lock()
    broken_off = threading.Event()
    crew = _Crew(jobs)

    def taken() -> Iterator[int]:
        while (group := queue.get()) is not None:
            for index in group:
                if not broken_off.is_set():
                    yield index

    def serve(worker: _Worker) -> None:
        for index in taken():
            if worker.dead:
                worker = crew.another()
            result = worker.run(index)
            if isinstance(result, FrontEndError) and go_on:
                result = result.error
            if isinstance(result, FrontEndError):
                wrong[index] = result.error
                broken_off.set()
                continue
            with lock:
                results[index] = result
                try:
                    done(jobs[index], result)
                except Exception as error:  # e.g. a full disk: the caller's to judge, as what compiling raises
                    results[index] = error
        if not worker.dead:
            worker.close()

    threads = [threading.Thread(target=serve, args=[crew.another()]) for _ in range(processes)]
    for _, group in itertools.groupby(range(len(jobs)), key=lambda index: jobs[index].make_ttir):
        queue.put(list(group))
    for _ in threads:
        queue.put(None)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:  # an interrupt: neither what waits nor what is being compiled is of use any more
        broken_off.set()
        for worker in crew.workers:
            worker.kill()
        for thread in threads:
            thread.join()
        raise
    if wrong:
        raise wrong[min(wrong)]
    return [results[index] for index in range(len(results))]


class _Crew:
    """The processes that compile jobs."""

    def __init__(self, jobs: Sequence[CompileJob]) -> None:
        self.jobs = jobs
        self.workers: list[_Worker] = []
        self.changing = threading.Lock()

    def another(self) -> _Worker:
        """Returns a fresh one, in the place of those that died."""
        with self.changing:
            self.workers = [worker for worker in self.workers if not worker.dead]
            self.workers.append(_Worker(self.jobs, self.workers))
            return self.workers[-1]


class _Worker:
    """The parent's end of a compile process. The process closes its copies of the ends of `others`: pipes end when all copies do."""

    def __init__(self, jobs: Sequence[CompileJob], others: Sequence[_Worker]) -> None:
        self.jobs = jobs
        self.dead = False
        self.said = os.memfd_create("stderr")
        asked, self.asking = os.pipe()
        self.answered, answering = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # or both processes would print what waits
        self.process = os.fork()
        if self.process == 0:
            ends = {end for one in (*others, self) for end in (one.asking, one.answered)}
            # one of the others may have died meanwhile: its numbers are free, or stand for what this process needs
            _serve(jobs, asked, answering, self.said, ends - {asked, answering, self.said})
        os.close(asked)
        os.close(answering)

    def run(self, index: int) -> Any:
        try:
            _send(self.asking, index)
            return _receive(self.answered)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            code, said = self.close()
            job = self.jobs[index]
            return BuildError(
                f"the compiler process died (exit status {code}) while it compiled {job.name} for {job.target}\n{said[-2000:]}",
                cure="this is a defect of the compiler; please report it with the text of kernelpack inspect",
            )

    def kill(self) -> None:
        if not self.dead:
            os.kill(self.process, signal.SIGKILL)

    def close(self) -> tuple[int, str]:
        """Ends the process, and returns its exit status and what it said on stderr."""
        self.dead = True
        os.close(self.asking)
        code = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        os.close(self.answered)
        with open(self.said, "rb") as stream:
            stream.seek(0)
            return code, stream.read().decode(errors="replace").strip()


def _send(end: int, value: Any) -> None:
    with open(end, "wb", closefd=False) as stream:
        pickle.dump(value, stream)


def _receive(end: int) -> Any:
    with open(end, "rb", closefd=False) as stream:  # may read ahead: there is one message at a time
        return pickle.load(stream)


def _serve(jobs: Sequence[CompileJob], asked: int, answering: int, said: int, ends: Collection[int]) -> NoReturn:
    """The life of a compile process: compiles the jobs whose numbers come in by `asked`, until the parent closes that pipe.

    Results go out by `answering`, what compilers print to stderr by `said`. `ends` are the parent's pipe ends, closed here first. The
    process ends by `os._exit`, so that nothing that the parent registered runs here.
    """
    try:
        for end in ends:
            with contextlib.suppress(OSError):  # the parent has closed it meanwhile
                os.close(end)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which ends its processes
        os.dup2(said, 2)
        gc.freeze()  # what the parent had stays
        while True:
            try:
                result = compile_job(jobs[_receive(asked)])
            except EOFError:
                os._exit(0)
            except Exception as error:  # everything is the parent's to judge
                result = error
            sys.stdout.flush()  # tl.static_print
            _send(answering, result)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
        os._exit(1)
