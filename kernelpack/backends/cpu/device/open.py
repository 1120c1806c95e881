"""Links CPU objects into this process, for launches from Python."""

from __future__ import annotations

import llvmlite.binding as llvm

from kernelpack.backends.base import Opened
from kernelpack.compiled import CompiledKernel
from kernelpack.llvm.codegen import initialise


def open_object(kernel: CompiledKernel) -> Opened:
    """Links a kernel's object by LLVM. Torch's threads share its programs, small launches run serially."""
    initialise()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(kernel.image))
    engine.finalize_object()
    return Opened(engine.get_function_address(kernel.entry), keeper=engine)
