"""ttir -> ttgir: the passes that GPUs share, in the order that one without matrix products or asynchronous copies needs."""

from __future__ import annotations

from kernelpack.backends.amd.context import AmdContext
from kernelpack.backends.gpu.passes.assign_layouts import assign_layouts
from kernelpack.backends.gpu.passes.clean import clean
from kernelpack.backends.gpu.passes.narrow_offsets import narrow_kernel
from kernelpack.backends.gpu.passes.place_shared import finish_module
from kernelpack.backends.gpu.passes.remove_conversions import remove_conversions
from kernelpack.backends.gpu.passes.split_reductions import split_reductions
from kernelpack.backends.gpu.passes.stage_shared import stage_shared
from kernelpack.ir.core import Operation
from kernelpack.passes.carry_scalars import carry_scalars
from kernelpack.passes.pipeline import Nest, Pass, Pipeline


def _place_shared(module: Operation, context: AmdContext) -> None:
    finish_module(module, context.machine, context, context.options.num_warps)


TTGIR = Pipeline(
    "ttgir",
    (
        Pass("carry_scalars", lambda m, c: carry_scalars(m, only_offsets=True)),
        Pass("narrow_offsets", narrow_kernel, after=("carry_scalars",)),
        Nest(
            (
                Pass(
                    "assign_layouts",
                    lambda f, c: assign_layouts(f, c.options.num_warps, c.machine),
                    after=("narrow_offsets",),
                ),
                Pass("clean", lambda f, c: clean(f), after=("assign_layouts",)),
                Pass("remove_conversions", lambda f, c: remove_conversions(f), after=("assign_layouts", "clean")),
                Pass("split_reductions", lambda f, c: split_reductions(f), after=("assign_layouts",)),
                Pass(
                    "stage_shared",
                    lambda f, c: stage_shared(f, c.machine),
                    after=("remove_conversions", "split_reductions"),
                ),
                Pass("late_clean", lambda f, c: clean(f), after=("stage_shared",)),
            )
        ),
        Pass("place_shared", _place_shared, after=("stage_shared",)),
    ),
)
"""From ttir to ttgir."""
