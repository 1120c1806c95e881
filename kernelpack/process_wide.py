"""What compilations change of the whole process while they run, in whatever threads."""

from __future__ import annotations

import functools
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager

from kernelpack.errors import CompilationError, SourceLocation


class ProcessWide(ContextDecorator):
    """A context, and a decorator, in which any number of threads may be at once.

    `change` is called when the first of them enters; what it returns is called when the last one leaves, and undoes it.
    """

    def __init__(self, change: Callable[[], Callable[[], None]]) -> None:
        self._change = change
        self._undo: Callable[[], object] = change
        self._lock = threading.Lock()
        self._inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._undo = self._change()
            self._inside += 1

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._undo()


def _put_off() -> Callable[[], None]:
    was_enabled = gc.isenabled()
    gc.disable()
    return gc.enable if was_enabled else gc.disable


collections_put_off = ProcessWide(_put_off)
"""While this lasts, in any thread, Python does not look for cyclic garbage.

A compilation makes enough objects to start such a search, which goes through all that the process has: with torch imported it takes
0.3 s, longer than a small kernel does to compile. What the compilation leaves is found right after it, as the youngest
generation alone.
"""


_FRAMES = 10_000
"""How deep Python may call: three functions for each of the operations that an unrolled loop strings together. Twice as many
fit on a thread's usual stack of 8 MB where half of them are generators (measured with Python 3.11)."""


def _raise_limit() -> Callable[[], None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _FRAMES))
    return functools.partial(sys.setrecursionlimit, before)


deep_recursion = ProcessWide(_raise_limit)
"""While this lasts, in any thread, Python's recursion limit is at least 10,000 frames: its own 1,000 end at some 300 operations."""


@contextmanager
def deep_recursion_in(kernel: SourceLocation | None) -> Iterator[None]:
    """deep_recursion, while a kernel is compiled. Raises CompilationError, with its place, where it is nested deeper still."""
    with deep_recursion:
        try:
            yield
        except RecursionError:
            raise CompilationError(
                "this kernel is nested too deep to compile",
                location=kernel,
                cure="write fewer branches within branches (elif, return), calls within calls, or terms in a formula",
            ) from None
