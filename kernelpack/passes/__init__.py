"""Passes over ttir, one a file. `TTIR` is the order in which every kernel goes through them."""

from __future__ import annotations

from kernelpack.passes.canonicalize import canonicalize
from kernelpack.passes.cse import cse
from kernelpack.passes.dce import dce
from kernelpack.passes.inline import inline
from kernelpack.passes.licm import licm
from kernelpack.passes.pipeline import Pipeline, module_pass
from kernelpack.passes.sum_in_dots import sum_in_dots
from kernelpack.passes.unroll_loops import unroll_loops

TTIR = Pipeline(
    "ttir",
    (
        module_pass(inline),
        module_pass(canonicalize, after=("inline",)),
        module_pass(unroll_loops, after=("canonicalize",)),  # which folds the bounds of loops
        module_pass(cse, after=("unroll_loops",)),
        module_pass(licm, after=("cse",)),
        module_pass(sum_in_dots, after=("licm",)),
        module_pass(canonicalize, "late_canonicalize", after=("sum_in_dots",)),
        module_pass(cse, "late_cse", after=("late_canonicalize",)),
        module_pass(dce, after=("late_cse",)),
    ),
)
