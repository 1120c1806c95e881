"""The LLVM IR of a few lines of ttgir for a GPU of any vendor, in which tiles are arguments: their registers are %x0, %x1, ..."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.amd import lowering as amd
from kernelpack.backends.amd.context import AmdContext
from kernelpack.backends.amd.lowering.state import AmdLowering
from kernelpack.backends.amd.machine import machine_of
from kernelpack.backends.cuda import lowering as cuda
from kernelpack.backends.cuda.context import CudaContext
from kernelpack.backends.cuda.lowering.shared_memory import CudaTiles
from kernelpack.backends.cuda.lowering.state import CudaLowering
from kernelpack.backends.cuda.lowering.ttgir_to_llir import ttgir_to_llir
from kernelpack.backends.cuda.machine.features import Feature, features_of
from kernelpack.backends.gpu.lowering.shared_memory import TileAccess
from kernelpack.backends.gpu.lowering.state import SHARED, Lowering, register_type
from kernelpack.ir.core import Operation
from kernelpack.ir.text import parse_module
from kernelpack.ir.types import MemDescType, TensorType
from kernelpack.ir.verify import verify
from kernelpack.layout.encoding import LinearEncoding, SharedEncoding, layout_of
from kernelpack.layout.linear import LinearLayout
from kernelpack.llvm.text import Val
from kernelpack.options import Options
from kernelpack.target import Target
from tests.passes.before_after import wrap

SM80, SM90, GFX942 = "cuda:sm_80", "cuda:sm_90a", "amdgpu:gfx942"
LANES = {SM80: 32, SM90: 32, GFX942: 64}
TARGETS = pytest.mark.parametrize("target", [SM80, GFX942])
"""One of each vendor."""


def parse(body: str, arguments: str, layouts: Mapping[str, LinearLayout] | None = None) -> Operation:
    """Returns a verified module; `$NAME` in the text stands for a layout of registers or of shared memory."""
    text = wrap("\n".join(map(str.strip, body.strip().splitlines())), arguments)
    for name, layout in (layouts or {}).items():
        shared = layout.in_names == ("offset",)
        encoding = str(SharedEncoding(layout) if shared else LinearEncoding(layout))
        text = re.sub(rf"\${name}\b", lambda _, encoding=encoding: encoding, text)
    module = parse_module(text)
    verify(module)
    return module


def nvidia(
    warps: int = 1, target: str = SM80, function: Operation | None = None, options: Options | None = None
) -> CudaLowering:
    """Returns the state of lowering a function, by default one without operations, for an architecture of NVIDIA's.

    The line that asks for the thread's index is left out.
    """
    features = features_of(Target.parse(target))
    tiles, facts = CudaTiles(Feature.STMATRIX in features.has), AxisInfoAnalysis(function or _empty())
    state = CudaLowering(features, options or Options(num_warps=warps), facts, cuda.LOWERINGS, tiles, lambda location: "")
    state.emit.lines.clear()
    return state


def gfx942(warps: int = 1, function: Operation | None = None, options: Options | None = None) -> AmdLowering:
    """As `nvidia`, for AMD's GPU, whose warps have 64 lanes."""
    lanes, facts = machine_of(Target.parse(GFX942)).lanes, AxisInfoAnalysis(function or _empty())
    state = AmdLowering(options or Options(num_warps=warps), lanes, facts, amd.LOWERINGS, TileAccess())
    state.emit.lines.clear()
    return state


def _empty() -> Operation:
    return parse("", "").body.operations[0]


def text_of(state: Lowering) -> str:
    """Returns the lines that a state has emitted. `%tid` is the thread's index."""
    return "\n".join(line.strip() for line in state.emit.lines).replace(state.tid.name, "%tid")


def lower(
    body: str,
    arguments: str = "",
    layouts: Mapping[str, LinearLayout] | None = None,
    target: str = SM80,
    options: Options | None = None,
) -> str:
    """Returns the lines of a function. `%tid` is the thread's index; the last line says what is returned, register by register.

    Arguments in shared memory are their address, `%x`. One warp runs the function where the options do not say otherwise.
    """
    function = parse(body, arguments, layouts).body.operations[0]
    options = options or Options(num_warps=1)
    state: Lowering
    if target == GFX942:
        state = gfx942(function=function, options=options)
    else:
        state = nvidia(target=target, function=function, options=options)
    for argument in function.body.arguments:
        assert argument.name != "v", "the emitter's own values are %v1, %v2, ..."
        name, kind = f"%{argument.name}", argument.type
        if isinstance(kind, MemDescType):
            state.addresses[argument] = Val(SHARED, name)
        elif isinstance(kind, TensorType):
            count = layout_of(argument).in_size("register")
            state[argument] = [Val(register_type(kind), f"{name}{number}") for number in range(count)]
        else:
            state[argument] = [Val(register_type(kind), name)]
    state.block(function.body)
    given = [", ".join(register.name for register in state[value]) for value in function.body.terminator.operands]
    lines = [*state.emit.lines, *(f"return {names}" for names in given)]
    return "\n".join(line.replace(f"{state.tid.name},", "%tid,").strip() for line in lines)


def module(
    body: str,
    arguments: str = "",
    layouts: Mapping[str, LinearLayout] | None = None,
    target: str = SM80,
    options: Options | None = None,
    shared: int = 0,
) -> str:
    """Returns the whole module of a kernel."""
    parsed = parse(body, arguments, layouts)
    parsed.attributes["ttg.shared"] = shared
    options = options or Options(num_warps=1)
    if target == GFX942:
        parsed.attributes["ttg.num-warps"] = options.num_warps
        return amd.ttgir_to_llir(parsed, AmdContext(Target.parse(target), options, "kernel"))
    return ttgir_to_llir(parsed, CudaContext(Target.parse(target), options, "kernel"))
