"""Loads CPU objects into this process, for launches from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import llvmlite.binding as llvm

from kernelpack.llvm.codegen import initialise
from kernelpack.runtime.loaded import LoadedKernel

if TYPE_CHECKING:
    from kernelpack.compiler import CompiledKernel


class LoadedObject(LoadedKernel):
    """A CPU kernel, linked into this process by LLVM. Torch's threads share its programs, small launches run serially."""

    def __init__(self, kernel: CompiledKernel) -> None:
        initialise()
        machine = llvm.Target.from_default_triple().create_target_machine()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(kernel.image))
        self._engine.finalize_object()
        self.address = self._engine.get_function_address(kernel.entry)
        super().__init__(kernel, self.address)
