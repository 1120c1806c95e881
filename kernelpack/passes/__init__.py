"""Passes over ttir, one a file. `TTIR_PASSES` is the order in which every kernel goes through them."""

from __future__ import annotations

from collections.abc import Callable

from kernelpack.ir.core import Operation
from kernelpack.passes.canonicalize import canonicalize
from kernelpack.passes.cse import cse
from kernelpack.passes.dce import dce
from kernelpack.passes.inline import inline
from kernelpack.passes.licm import licm
from kernelpack.passes.sum_in_dots import sum_in_dots
from kernelpack.passes.unroll_loops import unroll_loops

TTIR_PASSES: tuple[Callable[[Operation], object], ...] = (
    inline, canonicalize, unroll_loops, cse, licm, sum_in_dots, canonicalize, cse, dce,
)  # fmt: skip
