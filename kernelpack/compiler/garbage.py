"""Keeps Python's search for cyclic garbage out of compilations."""

from __future__ import annotations

import gc
from collections.abc import Callable

from kernelpack.compiler.process_wide import ProcessWide


def _put_off() -> Callable[[], None]:
    was_enabled = gc.isenabled()
    gc.disable()
    return gc.enable if was_enabled else gc.disable


collections_put_off = ProcessWide(_put_off)
"""While this lasts, in any thread, Python does not look for cyclic garbage.

A compilation makes enough objects to start such a search, which goes through all that the process has: with torch imported it takes
0.3 s, longer than a small kernel does to compile. What the compilation leaves behind is found right behind it, as the youngest
generation alone.
"""
