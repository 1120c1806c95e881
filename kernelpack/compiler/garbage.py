"""Keeps Python's search for cyclic garbage out of compilations."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_compiling = 0
_was_enabled = False


@contextmanager
def collections_put_off() -> Iterator[None]:
    """While this lasts, in any thread, Python does not look for cyclic garbage.

    A compilation makes enough objects to start such a search, which goes through all that the process has: with torch imported it takes
    0.3 s, longer than a small kernel does to compile. What the compilation leaves behind is found right behind it, as the
    youngest generation alone.
    """
    global _compiling, _was_enabled
    with _lock:
        if _compiling == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _compiling += 1
    try:
        yield
    finally:
        with _lock:
            _compiling -= 1
            if _compiling == 0 and _was_enabled:
                gc.enable()
