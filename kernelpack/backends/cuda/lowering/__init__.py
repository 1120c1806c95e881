"""Lowers ttgir to LLVM IR for NVPTX: one table of operations, each module a part of it."""

from __future__ import annotations

from collections.abc import Callable

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.base import Options
from kernelpack.backends.cuda.architectures import Architecture
from kernelpack.backends.cuda.lowering.atomics import ATOMICS
from kernelpack.backends.cuda.lowering.control_flow import CONTROL_FLOW
from kernelpack.backends.cuda.lowering.dot import DOT
from kernelpack.backends.cuda.lowering.elementwise import ELEMENTWISE, lower_elementwise
from kernelpack.backends.cuda.lowering.global_memory import GLOBAL_MEMORY
from kernelpack.backends.cuda.lowering.mbarrier import MBARRIER
from kernelpack.backends.cuda.lowering.rearrange import REARRANGE
from kernelpack.backends.cuda.lowering.reduce import REDUCE
from kernelpack.backends.cuda.lowering.shared_memory import SHARED_MEMORY
from kernelpack.backends.cuda.lowering.state import GLOBAL, Lowering
from kernelpack.backends.cuda.lowering.tma import TMA
from kernelpack.backends.cuda.lowering.warp_specialize import WARP_SPECIALIZE
from kernelpack.backends.cuda.lowering.wgmma import WGMMA
from kernelpack.backends.cuda.roles import roles_of, warps_of
from kernelpack.ir.core import Operation
from kernelpack.ir.dialects.tt import argument_facts
from kernelpack.ir.types import I1, PointerType, TensorDescType, Type
from kernelpack.llvm.debug_info import DebugInfo
from kernelpack.llvm.text import Val, llvm_type

LOWERINGS: dict[str, Callable[[Lowering, Operation], None]] = {
    **dict.fromkeys(ELEMENTWISE, lower_elementwise),
    **REARRANGE,
    **CONTROL_FLOW,
    **GLOBAL_MEMORY,
    **SHARED_MEMORY,
    **ATOMICS,
    **REDUCE,
    **DOT,
    **WGMMA,
    **MBARRIER,
    **TMA,
    **WARP_SPECIALIZE,
}


TENSOR_MAP_BYTES, TENSOR_MAP_ALIGN = 128, 64
"""CUtensorMap of cuda.h."""


def lower_function(function: Operation, architecture: Architecture, options: Options) -> str:
    """Returns the LLVM IR module of a kernel: a `ptx_kernel` function that takes the function's parameters in order and nothing else."""
    debug = DebugInfo(first=2)
    subprogram = debug.function(function.attributes["sym_name"], function.location)
    state = Lowering(
        architecture, options, AxisInfoAnalysis(function), LOWERINGS, lambda location: debug.at(subprogram, location)
    )
    state.num_warps = warps_of(function, options.num_warps)
    state.emit.attachment = state.attachment(function.location)
    parameters = []
    for argument, facts in zip(function.body.arguments, argument_facts(function), strict=True):
        name = f"%{argument.name or f'arg{argument.index}'}"
        aligned = isinstance(argument.type, PointerType) and facts.get("tt.divisibility", 1) >= 16
        if isinstance(argument.type, TensorDescType):  # a tensor map, filled in by the launcher
            parameters.append(f'ptr byval([{TENSOR_MAP_BYTES} x i8]) align {TENSOR_MAP_ALIGN} "nvvm.grid_constant" {name}')
            state[argument] = [Val("ptr", name)]
            continue
        parameters.append(f"{parameter_type(argument.type)}{' align 16' if aligned else ''} {name}")
        value = Val(parameter_type(argument.type), name)
        if argument.type == I1:
            value = state.emit.compare("icmp", "ne", value, Val("i8", "0"))
        state[argument] = [value]
    if any(op.name in WGMMA for op in function.walk()):
        state.warpgroup()
    state.block(function.body)
    state.emit.line("ret void")
    return _module(function.attributes["sym_name"], parameters, state, subprogram, debug, bool(roles_of(function)))


def parameter_type(kind: Type) -> str:
    """Returns how a parameter is passed: pointers to global memory, booleans as bytes, numbers by value."""
    if isinstance(kind, PointerType):
        return GLOBAL
    return "i8" if kind == I1 else llvm_type(kind)


def _module(name: str, parameters: list[str], state: Lowering, subprogram: int | None, debug: DebugInfo, roles: bool) -> str:
    options = state.options
    limits = [f'"nvvm.reqntid"="{32 * state.num_warps}"']
    if roles:  # with setmaxnreg, the assembler must know what a thread starts with
        limits.append('"nvvm.minctasm"="1"')
    if options.maxnreg is not None:
        limits.append(f'"nvvm.maxnreg"="{options.maxnreg}"')
    attached = "" if subprogram is None else f" !dbg !{subprogram}"
    return "\n".join(
        [
            'target triple = "nvptx64-nvidia-cuda"',
            "",
            "@shared_memory = external addrspace(3) global [0 x i8], align 1024",
            "",
            *sorted(state.emit.declarations),
            "",
            f"define ptx_kernel void @{name}({', '.join(parameters)}) {' '.join(limits)}{attached} {{",
            "entry:",
            *state.emit.lines,
            "}",
            "",
            "!0 = distinct !{!0, !1}",
            '!1 = !{!"llvm.loop.unroll.disable"}',
            *debug.lines(),
            "",
        ]
    )
