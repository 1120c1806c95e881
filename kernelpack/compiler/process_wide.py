"""What compilations change of the whole process while they run, in whatever threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ContextDecorator


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
