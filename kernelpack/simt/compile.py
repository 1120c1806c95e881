"""Compiles kernels for the emulator: through the CUDA backend's own stages up to llir, which then is translated."""

from __future__ import annotations

from kernelpack.backends.installed import backend_of
from kernelpack.compiler.stages import legalise, run_stages
from kernelpack.compiler.target_backend import StagesHook, stages_hook
from kernelpack.ir.core import Operation, entry_function
from kernelpack.kernel.jit import JITFunction
from kernelpack.options import Options
from kernelpack.runtime.front_end import specialized_ttir
from kernelpack.runtime.specialization import Specialization
from kernelpack.simt.launch import Program
from kernelpack.target import Target


def compile_program(fn: JITFunction, special: Specialization, target: Target, options: Options) -> Program:
    """Returns a kernel as it is for a CUDA target, ready to be emulated."""
    return program_of(specialized_ttir(fn, special, options), target, options, stages_hook())


def program_of(module: Operation, target: Target, options: Options, inspect: StagesHook | None = None) -> Program:
    """Returns an optimised ttir module's kernel, ready to be emulated. `inspect` may change the stages."""
    backend = backend_of(target)
    target = backend.resolve_target(target)
    legalise(module, backend, target)
    names = [argument.name for argument in entry_function(module).body.arguments]
    made = run_stages(module, target, options, until="llir", inspect=inspect)
    figures = made.context.figures
    return Program(str(made.value), figures["threads"], figures["shared"], names, made.context.descriptors)
