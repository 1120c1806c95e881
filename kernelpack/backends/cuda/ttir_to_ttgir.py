"""ttir -> ttgir: which thread holds what, what goes through shared memory, where threads wait for each other."""

from __future__ import annotations

from kernelpack.backends.base import Lowered
from kernelpack.backends.cuda.architectures import architecture_of
from kernelpack.backends.cuda.passes.assign_layouts import assign_layouts
from kernelpack.backends.cuda.passes.decompose_dots import decompose_dots
from kernelpack.backends.cuda.passes.fence_proxies import fence_proxies
from kernelpack.backends.cuda.passes.hoist_descriptors import hoist_descriptors
from kernelpack.backends.cuda.passes.lower_descriptors import lower_descriptors
from kernelpack.backends.cuda.passes.defer_products import defer_products
from kernelpack.backends.cuda.passes.pipeline_loops import pipeline_loops
from kernelpack.backends.cuda.passes.place_shared import place_shared
from kernelpack.backends.cuda.passes.reload_operands import reload_operands
from kernelpack.backends.cuda.passes.remove_conversions import remove_conversions
from kernelpack.backends.cuda.passes.select_warpgroup_dots import select_warpgroup_dots
from kernelpack.backends.cuda.passes.split_reductions import split_reductions
from kernelpack.backends.cuda.passes.stage_shared import stage_shared
from kernelpack.backends.cuda.roles import check_roles, warps_of
from kernelpack.ir.core import Operation, entry_function
from kernelpack.layout.families import LANES
from kernelpack.passes.cse import cse
from kernelpack.passes.dce import dce


def ttir_to_ttgir(module: Operation, lowered: Lowered) -> Operation:
    """Returns the ttgir module of a ttir module. Raises OutOfResources where the target has too little shared memory."""
    module = module.clone()
    architecture, options = architecture_of(lowered.target), lowered.options
    function = entry_function(module)
    check_roles(function)
    tensor_maps = hoist_descriptors(function)
    decompose_dots(function)
    if architecture.has_wgmma:
        select_warpgroup_dots(function, options.num_warps)
    assign_layouts(function, options.num_warps)
    _clean(module)
    remove_conversions(function)
    split_reductions(function)
    stage_shared(function)
    reload_operands(function)
    pipeline_loops(function, options.num_stages, architecture.shared_bytes)
    defer_products(function)
    lower_descriptors(function)
    _clean(module)
    fence_proxies(function)
    shared = place_shared(function, architecture.shared_bytes)
    num_warps = warps_of(function, options.num_warps)
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
    )
    return module


def _clean(module: Operation) -> None:
    """Merges and erases what passes leave behind: copies in layouts that nobody, or two, asked for."""
    cse(module)
    dce(module)
