"""Lowers ttgir to LLVM IR for NVPTX: one table of operations, each module a part of it."""

from __future__ import annotations

from collections.abc import Callable

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.analysis.call_graph import CallGraph
from kernelpack.backends.cuda.lowering.atomics import ATOMICS
from kernelpack.backends.cuda.lowering.calls import CALLS, begin_function, end_function
from kernelpack.backends.cuda.lowering.dot import DOT
from kernelpack.backends.cuda.lowering.elementwise import LOWERED
from kernelpack.backends.cuda.lowering.foreign import FOREIGN
from kernelpack.backends.cuda.lowering.fp8 import lower_float_cast
from kernelpack.backends.cuda.lowering.global_memory import GLOBAL_MEMORY
from kernelpack.backends.cuda.lowering.mbarrier import MBARRIER
from kernelpack.backends.cuda.lowering.messages import MESSAGES
from kernelpack.backends.cuda.lowering.shared_memory import SHARED_MEMORY, CudaTiles
from kernelpack.backends.cuda.lowering.state import CudaLowering
from kernelpack.backends.cuda.lowering.tensor_map import TENSOR_MAP, definitions, give_place_back, take_place
from kernelpack.backends.cuda.lowering.tma import TMA, prefetch_tensor_maps
from kernelpack.backends.cuda.lowering.warp_specialize import WARP_SPECIALIZE
from kernelpack.backends.cuda.lowering.wgmma import WGMMA
from kernelpack.backends.cuda.machine.features import LANES, Feature, Features
from kernelpack.backends.cuda.machine.roles import roles_of, warps_of
from kernelpack.backends.cuda.machine.shared_uses import TENSOR_MAP_BYTES
from kernelpack.backends.gpu.lowering.control_flow import CONTROL_FLOW
from kernelpack.backends.gpu.lowering.exchange import EXCHANGE
from kernelpack.backends.gpu.lowering.rearrange import REARRANGE
from kernelpack.backends.gpu.lowering.reduce import REDUCE
from kernelpack.backends.gpu.lowering.state import GLOBAL
from kernelpack.ir.core import Operation
from kernelpack.ir.dialects.tt import argument_facts
from kernelpack.ir.types import I1, PointerType, TensorDescType, Type
from kernelpack.llvm.debug_info import DebugInfo
from kernelpack.llvm.text import Val, llvm_type, string_constant
from kernelpack.options import Options

LOWERINGS: dict[str, Callable[[CudaLowering, Operation], None]] = {
    **LOWERED,
    "tt.fp_to_fp": lower_float_cast,
    **REARRANGE,
    **CONTROL_FLOW,
    **GLOBAL_MEMORY,
    **SHARED_MEMORY,
    **ATOMICS,
    **REDUCE,
    **EXCHANGE,
    **FOREIGN,
    **MESSAGES,
    **DOT,
    **WGMMA,
    **MBARRIER,
    **TMA,
    **TENSOR_MAP,
    **WARP_SPECIALIZE,
    **CALLS,
}


TENSOR_MAP_ALIGN = 64
"""What CUtensorMap of cuda.h is aligned to."""


def lower_module(module: Operation, features: Features, options: Options) -> str:
    """Returns the LLVM IR module of a kernel and the functions that it calls. The kernel is a `ptx_kernel` function that takes
    the ttir parameters in order, and nothing else."""
    debug = DebugInfo(first=2)
    declarations: set[str] = set()
    functions: list[str] = []
    memory: list[str] = []
    messages: dict[str, str] = {}
    for function in CallGraph(module).order:
        subprogram = debug.function(function.attributes["sym_name"], function.location)
        state = _new_state(function, features, options, debug, subprogram)
        state.messages = messages
        attached = "" if subprogram is None else f" !dbg !{subprogram}"
        is_kernel = function.attributes.get("sym_visibility") == "public"
        head = _begin_kernel(state, function) if is_kernel else begin_function(state, function)
        if is_kernel:
            shared = module.attributes["ttg.shared"]
            memory += definitions(function, state.num_warps, shared)
            take_place(state, function, shared)
        if any(op.name in WGMMA for op in function.walk()):
            state.warpgroup()
        state.block(function.body)
        state.attach(function.location)
        give_place_back(state)
        end_function(state, function)
        declarations |= state.emit.declarations
        functions += [f"{head}{attached} {{", "entry:", *state.emit.allocas, *state.emit.lines, "}", ""]
    return "\n".join(
        [
            'target triple = "nvptx64-nvidia-cuda"',
            "",
            "@shared_memory = external addrspace(3) global [0 x i8], align 1024",
            "",
            *(
                f"{name} = private unnamed_addr addrspace(1) constant {string_constant(text)}"
                for text, name in messages.items()
            ),
            *memory,
            *sorted(declarations),
            "",
            *functions,
            "!0 = distinct !{!0, !1}",
            '!1 = !{!"llvm.loop.unroll.disable"}',
            *debug.lines(),
            "",
        ]
    )


def _new_state(
    function: Operation, features: Features, options: Options, debug: DebugInfo, subprogram: int | None
) -> CudaLowering:
    tiles = CudaTiles(Feature.STMATRIX in features.has)
    facts = AxisInfoAnalysis(function)
    state = CudaLowering(features, options, facts, LOWERINGS, tiles, lambda location: debug.at(subprogram, location))
    state.num_warps = warps_of(function, options.num_warps)
    state.attach(function.location)
    return state


def _begin_kernel(state: CudaLowering, function: Operation) -> str:
    """Defines a kernel's parameters and returns how its definition begins."""
    parameters = []
    for argument, facts in zip(function.body.arguments, argument_facts(function), strict=True):
        name = f"%{argument.name or f'arg{argument.index}'}.0"  # no name of ours has a dot
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
    prefetch_tensor_maps(state, function)
    limits = [f'"nvvm.reqntid"="{LANES * state.num_warps}"']
    if roles_of(function):  # with setmaxnreg, the assembler must know what a thread starts with
        limits.append('"nvvm.minctasm"="1"')
    if state.options.maxnreg is not None:
        limits.append(f'"nvvm.maxnreg"="{state.options.maxnreg}"')
    return f"define ptx_kernel void @{function.attributes['sym_name']}({', '.join(parameters)}) {' '.join(limits)}"


def parameter_type(kind: Type) -> str:
    """Returns how a parameter is passed: pointers to global memory, booleans as bytes, numbers by value."""
    if isinstance(kind, PointerType):
        return GLOBAL
    return "i8" if kind == I1 else llvm_type(kind)
