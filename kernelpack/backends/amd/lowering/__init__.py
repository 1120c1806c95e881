"""Lowers ttgir to LLVM IR for amdgcn: what GPUs share, and this vendor's memory, functions and atomics."""

from __future__ import annotations

from collections.abc import Callable

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.amd.context import AmdContext
from kernelpack.backends.amd.lowering.atomics import ATOMICS
from kernelpack.backends.amd.lowering.math import ELEMENTS
from kernelpack.backends.amd.lowering.memory import GLOBAL_MEMORY
from kernelpack.backends.amd.lowering.state import AmdLowering
from kernelpack.backends.amd.machine import CODE_OBJECT, TRIPLE
from kernelpack.backends.gpu.lowering.control_flow import CONTROL_FLOW
from kernelpack.backends.gpu.lowering.elementwise import elementwise
from kernelpack.backends.gpu.lowering.exchange import EXCHANGE
from kernelpack.backends.gpu.lowering.rearrange import REARRANGE
from kernelpack.backends.gpu.lowering.reduce import REDUCE
from kernelpack.backends.gpu.lowering.shared_memory import SHARED_MEMORY, TileAccess
from kernelpack.backends.gpu.lowering.state import GLOBAL, Lowering
from kernelpack.ir.core import Operation, entry_function
from kernelpack.ir.dialects.tt import argument_facts
from kernelpack.ir.locations import source_files
from kernelpack.ir.types import I1, PointerType, Type
from kernelpack.llvm.debug_info import DebugInfo
from kernelpack.llvm.text import Val, llvm_type


def _nothing(state: Lowering, op: Operation) -> None:
    """Launches do not begin before the one before has ended."""


LOWERINGS: dict[str, Callable[[Lowering, Operation], None]] = {
    **{name: elementwise(row) for name, row in ELEMENTS.items()},
    **REARRANGE,
    **CONTROL_FLOW,
    **GLOBAL_MEMORY,
    **SHARED_MEMORY,
    **ATOMICS,
    **REDUCE,
    **EXCHANGE,
    "gpu.gdc_wait": _nothing,
    "gpu.gdc_launch_dependents": _nothing,
}


def ttgir_to_llir(module: Operation, context: AmdContext) -> str:
    """Returns the kernel as an LLVM IR module for amdgcn, not yet optimised: an `amdgpu_kernel` that takes the ttir parameters in order."""
    context.sources.update(source_files(module))
    kernel, shared = entry_function(module), module.attributes["ttg.shared"]
    debug = DebugInfo(first=0)
    subprogram = debug.function(kernel.attributes["sym_name"], kernel.location)
    state = AmdLowering(
        context.options,
        context.machine.lanes,
        AxisInfoAnalysis(kernel),
        LOWERINGS,
        TileAccess(),
        lambda location: debug.at(subprogram, location),
    )
    state.attach(kernel.location)
    parameters = _parameters(state, kernel)
    state.block(kernel.body)
    state.attach(kernel.location)
    state.emit.line("ret void")
    threads = module.attributes["ttg.num-warps"] * context.machine.lanes
    limits = f'"amdgpu-flat-work-group-size"="{threads},{threads}" "uniform-work-group-size"="true"'
    attached = "" if subprogram is None else f" !dbg !{subprogram}"
    # internal: how many bytes a workgroup takes stands in the kernel's descriptor
    memory = f"@shared_memory = internal addrspace(3) global [{shared} x i8] poison, align 16"
    return "\n".join(
        [
            f'target triple = "{TRIPLE}"',
            "",
            *([memory] if shared else []),
            *sorted(state.emit.declarations),
            "",
            f"define amdgpu_kernel void @{kernel.attributes['sym_name']}({', '.join(parameters)}) {limits}{attached} {{",
            "entry:",
            *state.emit.lines,
            "}",
            "",
            *debug.lines(f'!{{i32 1, !"amdhsa_code_object_version", i32 {CODE_OBJECT}}}'),
            "",
        ]
    )


def _parameters(state: Lowering, kernel: Operation) -> list[str]:
    """Defines a kernel's parameters and returns how its definition states them."""
    parameters = []
    for argument, facts in zip(kernel.body.arguments, argument_facts(kernel), strict=True):
        kind = _parameter_type(argument.type)
        value = Val(kind, f"%{argument.name or f'arg{argument.index}'}.0")  # no name of ours has a dot
        aligned = isinstance(argument.type, PointerType) and facts.get("tt.divisibility", 1) >= 16
        parameters.append(f"{kind}{' align 16' if aligned else ''} {value.name}")
        if argument.type == I1:
            value = state.emit.compare("icmp", "ne", value, Val("i8", "0"))
        state[argument] = [value]
    return parameters


def _parameter_type(kind: Type) -> str:
    """Returns how a parameter is passed: pointers to global memory, booleans as bytes, numbers by value."""
    if isinstance(kind, PointerType):
        return GLOBAL
    return "i8" if kind == I1 else llvm_type(kind)
