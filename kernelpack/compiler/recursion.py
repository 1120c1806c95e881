"""Lets analyses follow formulas of any practical depth by recursion."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

from kernelpack.compiler.process_wide import ProcessWide

_FRAMES = 10_000
"""How deep Python may call: three functions for each of the operations that an unrolled loop strings together. Twice as many
fit on a thread's usual stack of 8 MB where half of them are generators (measured with Python 3.11)."""


def _raise_limit() -> Callable[[], None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _FRAMES))
    return functools.partial(sys.setrecursionlimit, before)


deep_recursion = ProcessWide(_raise_limit)
"""While this lasts, in any thread, Python's recursion limit is at least 10,000 frames: its own 1,000 end at some 300 operations."""
