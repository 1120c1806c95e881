"""ttir -> ttgir: which thread holds what, what goes through shared memory, where threads wait for each other."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from kernelpack.analysis.call_graph import CallGraph
from kernelpack.backends.base import Fact, Lowered
from kernelpack.backends.cuda.architectures import Architecture, architecture_of
from kernelpack.backends.cuda.passes.assign_layouts import assign_layouts
from kernelpack.backends.cuda.passes.decompose_dots import decompose_dots, widen_small_floats
from kernelpack.backends.cuda.passes.defer_products import defer_products
from kernelpack.backends.cuda.passes.fence_proxies import fence_proxies
from kernelpack.backends.cuda.passes.hoist_descriptors import hoist_descriptors
from kernelpack.backends.cuda.passes.lower_descriptors import lower_descriptors
from kernelpack.backends.cuda.passes.narrow_offsets import RANGE, arguments_within, narrow_offsets
from kernelpack.backends.cuda.passes.pipeline_loops import pipeline_loops
from kernelpack.backends.cuda.passes.pipeline_tma import pipeline_tma
from kernelpack.backends.cuda.passes.place_shared import place_shared
from kernelpack.backends.cuda.passes.reload_operands import reload_operands
from kernelpack.backends.cuda.passes.remove_conversions import remove_conversions
from kernelpack.backends.cuda.passes.rotate_products import rotate_products
from kernelpack.backends.cuda.passes.select_warpgroup_dots import select_warpgroup_dots
from kernelpack.backends.cuda.passes.sink_conversions import sink_conversions
from kernelpack.backends.cuda.passes.specialize_warps import specialize_warps
from kernelpack.backends.cuda.passes.split_reductions import split_reductions
from kernelpack.backends.cuda.passes.stage_shared import stage_shared
from kernelpack.backends.cuda.passes.stagger_warpgroups import stagger_warpgroups
from kernelpack.backends.cuda.products_in_flight import PRODUCT, WAIT
from kernelpack.backends.cuda.roles import check_roles, warps_of
from kernelpack.backends.cuda.toolchain import find_ptxas
from kernelpack.errors import OutOfResources
from kernelpack.ir.core import Operation, Value, entry_function
from kernelpack.layout.families import LANES
from kernelpack.passes.cse import cse
from kernelpack.passes.dce import dce


def ttir_to_ttgir(module: Operation, lowered: Lowered) -> Operation:
    """Returns the ttgir module of a ttir module. Raises OutOfResources where the target has too little shared memory.

    Where the buffers of `num_stages` do not fit, loops have one stage less: a kernel that was tuned to Triton's buffers, which are
    one fewer for products of warps, compiles.
    """
    stages = lowered.options.num_stages
    try:
        return _in_stages(stages, module, lowered)
    except OutOfResources:
        if stages > 2:
            with contextlib.suppress(OutOfResources):
                return _in_stages(stages - 1, module, lowered)
        raise


def _in_stages(num_stages: int, module: Operation, lowered: Lowered) -> Operation:
    module = module.clone()
    architecture, options = architecture_of(lowered.target), lowered.options
    kernel = entry_function(module)
    check_roles(kernel)
    tensor_maps = hoist_descriptors(kernel)
    maps = kernel.body.arguments[len(kernel.body.arguments) - len(tensor_maps) :]
    bases: dict[Value, str] = {value: tensor_map.tensor for value, tensor_map in zip(maps, tensor_maps, strict=True)}
    ranges = {argument.name for argument in arguments_within(kernel)} - narrow_offsets(kernel)
    lowered.unused |= {Fact(name, RANGE, 32) for name in ranges}
    authors_own = any(op.name == PRODUCT for op in module.walk())
    for function in CallGraph(module).callers_first():
        _lower(function, module, architecture, options.num_warps, num_stages, bases)
    if lowered.cautious:
        _wait_at_once(module)
        lowered.metadata["waits_at_once"] = True
    lowered.runs_ahead = not authors_own and any(op.name == WAIT for op in module.walk())
    shared = place_shared(module, architecture.shared_bytes, num_stages)
    num_warps = warps_of(kernel, options.num_warps)
    module.attributes.update(
        {
            "ttg.num-warps": num_warps,
            "ttg.threads-per-warp": LANES,
            "ttg.shared": shared,
            "ttg.target": str(lowered.target),
        }
    )
    if tensor_maps:
        lowered.metadata["tensor_maps"] = tuple(map(str, tensor_maps))
    lowered.metadata.update(
        shared=shared,
        num_warps=num_warps,
        threads=num_warps * LANES,
        num_ctas=1,
    )
    return module


def _wait_at_once(module: Operation) -> None:
    """Makes each product of warpgroups end where it is issued."""
    for op in list(module.walk()):
        if op.name == PRODUCT:
            op.attributes["isAsync"] = False
        elif op.name == WAIT:
            op.replace_with(*op.operands)


def _lower(
    function: Operation,
    module: Operation,
    architecture: Architecture,
    num_warps: int,
    num_stages: int,
    bases: Mapping[Value, str],
) -> None:
    """Runs the passes over one function of a module in place. `bases` names the tensors of the kernel's descriptors."""
    is_kernel = function is entry_function(module)
    decompose_dots(function)
    if architecture.has_wgmma and is_kernel:  # wgmma does not overlap across calls (ptxas, C7510)
        select_warpgroup_dots(function, num_warps)
    widen_small_floats(function, architecture.has_fp8_mma)
    assign_layouts(function, num_warps, architecture.has_vector_atomics)
    _clean(module)
    remove_conversions(function)
    sink_conversions(function)
    split_reductions(function)
    stage_shared(function)
    reload_operands(function)
    pipeline_loops(function, num_stages, bases, architecture.shared_bytes)
    defer_products(function)
    stagger_warpgroups(function)
    rotate_products(function)
    if architecture.has_wgmma and is_kernel and find_ptxas() is not None:  # nvJitLink drops setmaxnreg
        specialize_warps(function, num_warps, num_stages, bases, architecture.shared_bytes)
    pipeline_tma(function, num_stages, bases, architecture.shared_bytes)
    lower_descriptors(function, shared_bytes=architecture.shared_bytes)
    _clean(module)
    fence_proxies(function)


def _clean(module: Operation) -> None:
    """Merges and erases what passes leave behind: copies in layouts that nobody, or two, asked for."""
    cse(module)
    dce(module)
