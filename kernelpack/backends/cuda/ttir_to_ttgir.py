"""ttir -> ttgir: which thread holds what, what goes through shared memory, where threads wait for each other."""

from __future__ import annotations

from kernelpack.backends.cuda.assemble.toolchain import find_ptxas
from kernelpack.backends.cuda.context import CudaContext
from kernelpack.backends.cuda.machine.dialect import PRODUCT
from kernelpack.backends.cuda.machine.features import LANES, Feature
from kernelpack.backends.cuda.machine.roles import check_roles, warps_of
from kernelpack.backends.cuda.passes.decompose_products import decompose_dots, widen_small_floats
from kernelpack.backends.cuda.passes.fence_proxies import fence_proxies
from kernelpack.backends.cuda.passes.hoist_descriptors import hoist_descriptors
from kernelpack.backends.cuda.passes.select_warpgroup_products import select_warpgroup_dots
from kernelpack.backends.cuda.schedule.decide import decide
from kernelpack.backends.cuda.schedule.lower_descriptors import lower_descriptors
from kernelpack.backends.cuda.schedule.rewrite_loops import rewrite_loops
from kernelpack.backends.cuda.schedule.rewrite_roles import rewrite_roles
from kernelpack.backends.cuda.schedule.rotate_products import rotate_products
from kernelpack.backends.gpu.passes.assign_layouts import assign_layouts
from kernelpack.backends.gpu.passes.clean import clean
from kernelpack.backends.gpu.passes.narrow_offsets import narrow_kernel
from kernelpack.backends.gpu.passes.place_shared import finish_module
from kernelpack.backends.gpu.passes.reload_operands import reload_operands
from kernelpack.backends.gpu.passes.remove_conversions import remove_conversions
from kernelpack.backends.gpu.passes.sink_conversions import sink_conversions
from kernelpack.backends.gpu.passes.split_reductions import split_reductions
from kernelpack.backends.gpu.passes.stage_shared import stage_shared
from kernelpack.backends.gpu.passes.unroll_short_loops import unroll_short_loops
from kernelpack.ir.core import Operation, entry_function
from kernelpack.passes.carry_scalars import carry_scalars
from kernelpack.passes.pipeline import Nest, Pass, Pipeline

SCHEDULE = "schedule"
"""The note that says what was decided of loops."""


def _look_at_kernel(module: Operation, context: CudaContext) -> None:
    """Checks the roles of the kernel's warps, and notes what its author wrote."""
    check_roles(entry_function(module))
    context.authors_products = any(op.name == PRODUCT for op in module.walk())


def _hoist_descriptors(module: Operation, context: CudaContext) -> None:
    kernel = entry_function(module)
    tensor_maps = hoist_descriptors(kernel)
    arguments = kernel.body.arguments[len(kernel.body.arguments) - len(tensor_maps) :]
    context.tensors = {value: found.tensor for value, found in zip(arguments, tensor_maps, strict=True)}
    context.descriptors = tuple(map(str, tensor_maps))


def _is_kernel_with_wgmma(function: Operation, context: CudaContext) -> bool:
    """wgmma does not overlap across calls (ptxas, C7510)."""
    return Feature.WGMMA in context.features.has and function is entry_function(_module(function))


def _module(function: Operation) -> Operation:
    return next(function.ancestors())


def _rotate_products(function: Operation, context: CudaContext) -> None:
    context.rotated = rotate_products(function)


def _schedule(function: Operation, context: CudaContext) -> None:
    """Decides what the next two passes do to the loops of the function."""
    schedule = decide(
        function,
        context.options.num_warps,
        context.num_stages,
        context.tensors,
        context.features.shared_bytes,
        context.rotated,
        may_have_roles=_is_kernel_with_wgmma(function, context) and find_ptxas() is not None,  # nvJitLink drops setmaxnreg
    )
    if context.waits_at_once:
        schedule.wait_at_once()
        context.figures["waits_at_once"] = True
    context.runs_on |= schedule.runs_on and not context.authors_products
    context.notes[SCHEDULE] = "\n".join(filter(None, [context.notes.get(SCHEDULE), str(schedule)]))
    context.schedule = schedule


def _rewrite_loops(function: Operation, context: CudaContext) -> None:
    rewrite_loops(context.schedule.loops)


def _rewrite_roles(function: Operation, context: CudaContext) -> None:
    if context.schedule.roles is not None:
        rewrite_roles(function, context.schedule.roles, context.options.num_warps)


def _place_shared(module: Operation, context: CudaContext) -> None:
    """Places buffers and barriers, and writes down what the launcher and the next stages must know."""
    context.notes[SCHEDULE] = context.notes.get(SCHEDULE) or "no loop has iterations that overlap"
    num_warps = warps_of(entry_function(module), context.options.num_warps)
    finish_module(module, context.machine, context, num_warps, context.num_stages)


TTGIR = Pipeline(
    "ttgir",
    (
        Pass("look_at_kernel", _look_at_kernel),
        Pass("hoist_descriptors", _hoist_descriptors, after=("look_at_kernel",)),
        Pass(
            "unroll_short_loops",
            lambda m, c: unroll_short_loops(m, c.options.num_warps * LANES),
            after=("hoist_descriptors",),
        ),
        Pass("carry_scalars", lambda m, c: carry_scalars(m, only_offsets=True), after=("unroll_short_loops",)),
        Pass("narrow_offsets", narrow_kernel, after=("hoist_descriptors", "unroll_short_loops", "carry_scalars")),
        Nest(
            (
                Pass("decompose_dots", lambda f, c: decompose_dots(f)),
                Pass(
                    "select_warpgroup_dots",
                    lambda f, c: select_warpgroup_dots(f, c.options.num_warps),
                    after=("look_at_kernel", "decompose_dots"),
                    when=_is_kernel_with_wgmma,
                ),
                Pass(
                    "widen_small_floats",
                    lambda f, c: widen_small_floats(f, Feature.FP8_MMA in c.features.has),
                    after=("select_warpgroup_dots",),
                ),
                Pass(
                    "assign_layouts",
                    lambda f, c: assign_layouts(f, c.options.num_warps, c.machine),
                    after=("select_warpgroup_dots", "widen_small_floats", "narrow_offsets"),
                ),
                Pass("clean", lambda f, c: clean(f), after=("assign_layouts",)),
                Pass("remove_conversions", lambda f, c: remove_conversions(f), after=("assign_layouts", "clean")),
                Pass("sink_conversions", lambda f, c: sink_conversions(f), after=("remove_conversions",)),
                Pass("split_reductions", lambda f, c: split_reductions(f), after=("assign_layouts",)),
                Pass("stage_shared", lambda f, c: stage_shared(f, c.machine), after=("sink_conversions", "split_reductions")),
                Pass("reload_operands", lambda f, c: reload_operands(f, c.machine), after=("stage_shared",)),
                Pass("rotate_products", _rotate_products, after=("stage_shared", "reload_operands")),
                Pass(
                    "schedule",
                    _schedule,
                    after=("hoist_descriptors", "stage_shared", "reload_operands", "rotate_products"),
                ),
                Pass("rewrite_loops", _rewrite_loops, after=("schedule",)),
                Pass("rewrite_roles", _rewrite_roles, after=("schedule", "rewrite_loops")),
                Pass(
                    "lower_descriptors",
                    lambda f, c: lower_descriptors(f, shared_bytes=c.features.shared_bytes),
                    after=("rewrite_loops", "rewrite_roles"),
                ),
                Pass("late_clean", lambda f, c: clean(f), after=("lower_descriptors",)),
                Pass("fence_proxies", lambda f, c: fence_proxies(f), after=("lower_descriptors", "late_clean")),
            )
        ),
        Pass("place_shared", _place_shared, after=("stage_shared", "fence_proxies")),
    ),
)
"""From ttir to ttgir. Where the buffers of `num_stages` do not fit, the backend attempts one stage less: a kernel that was tuned to
Triton's buffers, which are one fewer for products of warps, compiles."""
