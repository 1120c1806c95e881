"""The LLVM IR of a few lines of ttgir for a GPU, in which tiles are arguments: their registers are %x0, %x1, ..."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.cuda.context import CudaContext
from kernelpack.backends.cuda.lowering import LOWERINGS
from kernelpack.backends.cuda.lowering.state import SHARED, Lowering, register_type
from kernelpack.backends.cuda.lowering.ttgir_to_llir import ttgir_to_llir
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

SM80, SM90 = "cuda:sm_80", "cuda:sm_90a"


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
    state = Lowering(CudaContext(Target.parse(target), options, "f").features, options, AxisInfoAnalysis(function), LOWERINGS)
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
    return "\n".join(line.replace(f"{state.tid.name},", "%tid,").strip() for line in lines[1:])


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
    return ttgir_to_llir(parsed, CudaContext(Target.parse(target), options or Options(num_warps=1), "kernel"))
