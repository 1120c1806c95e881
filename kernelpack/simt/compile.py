"""Compiles kernels for the emulator: through the CUDA backend's own stages up to llir, which then is translated."""

from __future__ import annotations

from kernelpack.backends.base import Lowered, Options
from kernelpack.backends.installed import backend_of
from kernelpack.compiler import legalise
from kernelpack.frontend.jit import JITFunction
from kernelpack.ir.core import Operation, entry_function
from kernelpack.runtime.specialization import Specialization, specialized_ttir
from kernelpack.simt.launch import Program
from kernelpack.target import Target

_LAST = "llir"


def compile_program(fn: JITFunction, special: Specialization, target: Target, options: Options) -> Program:
    """Returns a kernel as it is for a CUDA target, ready to be emulated."""
    return program_of(specialized_ttir(fn, special, options), target, options)


def program_of(module: Operation, target: Target, options: Options) -> Program:
    """Returns an optimised ttir module's kernel, ready to be emulated."""
    backend = backend_of(target)
    target = backend.resolve_target(target)
    legalise(module, backend, target)
    function = entry_function(module)
    lowered = Lowered(target, options, function.attributes["sym_name"])
    names = [argument.name for argument in function.body.arguments]
    value = module
    for name, stage in backend.stages(target, options).items():
        value = stage(value, lowered)
        if name == _LAST:
            break
    figures = lowered.metadata
    return Program(str(value), figures["threads"], figures["shared"], names, figures.get("tensor_maps", ()))
