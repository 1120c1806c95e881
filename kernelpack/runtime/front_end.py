"""The ttir of a kernel for a specialization. It is imported when something is compiled: launching what was compiled needs none."""

from __future__ import annotations

from kernelpack import knobs
from kernelpack.compiler.stages import optimise_ttir
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.core import Operation
from kernelpack.kernel.jit import JITFunction
from kernelpack.options import Options
from kernelpack.runtime.specialization import Specialization


def ttir_of(fn: JITFunction, special: Specialization, options: Options) -> Operation:
    """Returns the ttir module of a kernel for a specialization, as the front end makes it."""
    signature, constexprs = dict(special.signature), dict(special.constexprs)
    return ast_to_ttir(
        fn, signature, constexprs, special.facts, options, plain_globals=knobs.compilation.allow_non_constexpr_globals
    )


def specialized_ttir(fn: JITFunction, special: Specialization, options: Options) -> Operation:
    """Returns the optimised ttir module of a kernel for a specialization."""
    return optimise_ttir(ttir_of(fn, special, options))
