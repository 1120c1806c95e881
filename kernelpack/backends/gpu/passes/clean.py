"""Merges and erases what passes leave in their module: copies in layouts that nobody, or two, asked for."""

from __future__ import annotations

from kernelpack.ir.core import Operation
from kernelpack.passes.cse import cse
from kernelpack.passes.dce import dce


def clean(function: Operation) -> None:
    """Rewrites the module of a function in place."""
    module = next(function.ancestors())
    cse(module)
    dce(module)
