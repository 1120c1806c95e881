"""Passes over ttir, one a file. `TTIR_PASSES` is the order in which every kernel goes through them."""

from __future__ import annotations

from collections.abc import Callable

from kernelpack.ir.core import Operation

TTIR_PASSES: tuple[Callable[[Operation], None], ...] = ()
