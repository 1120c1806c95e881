"""Lets analyses follow formulas of any practical depth by recursion."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_FRAMES = 10_000
"""How deep Python may call: three functions for each of the operations that an unrolled loop strings together. Twice as many
fit on a thread's usual stack of 8 MB where half of them are generators (measured with Python 3.11)."""
_lock = threading.Lock()
_compiling = 0
_limit_before = 0


@contextmanager
def deep_recursion() -> Iterator[None]:
    """While this lasts, in any thread, Python's recursion limit is at least 10,000 frames: its own 1,000 end at some 300 operations."""
    global _compiling, _limit_before
    with _lock:
        if _compiling == 0:
            _limit_before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_limit_before, _FRAMES))
        _compiling += 1
    try:
        yield
    finally:
        with _lock:
            _compiling -= 1
            if _compiling == 0:
                sys.setrecursionlimit(_limit_before)
