"""`with AsyncCompileMode(executor)`: what `kernel.warmup(...)` compiles, threads of the executor compile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, as_completed
from contextvars import ContextVar
from typing import Any

active_mode: ContextVar[AsyncCompileMode | None] = ContextVar("kernelpack_active_mode", default=None)


class AsyncCompileMode:
    """While it is entered, `kernel.warmup(...)` returns a future of its kernel at once. A launch of a kernel that is on its way
    waits for it, or compiles it if no thread has begun. Leaving waits for all of them, and raises the first error unless
    `ignore_errors`.

    `executor` has threads. LLVM serves one at a time; ptxas, which takes about half of a CUDA kernel's time, runs beside others.
    """

    def __init__(self, executor: Executor, *, ignore_errors: bool = False) -> None:
        self.executor = executor
        self.ignore_errors = ignore_errors
        self._futures: list[Future[Any]] = []

    def submit(self, compile: Callable[[], Any]) -> Future[Any]:
        """Returns a future of what `compile` returns."""
        future = self.executor.submit(compile)
        self._futures.append(future)
        return future

    def __enter__(self) -> AsyncCompileMode:
        if active_mode.get() is not None:
            raise RuntimeError("Another AsyncCompileMode is already active")
        active_mode.set(self)
        return self

    def __exit__(self, *problem: object) -> None:
        active_mode.set(None)
        futures, self._futures = self._futures, []
        for future in as_completed(futures):
            if not self.ignore_errors:
                future.result()
