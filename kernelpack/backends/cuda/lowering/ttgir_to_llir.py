"""ttgir -> LLVM IR text."""

from __future__ import annotations

from kernelpack.backends.cuda.context import CudaContext
from kernelpack.backends.cuda.lowering import lower_module
from kernelpack.backends.cuda.machine.features import features_of
from kernelpack.ir.core import Operation
from kernelpack.ir.locations import source_files


def ttgir_to_llir(module: Operation, context: CudaContext) -> str:
    """Returns the kernel as an LLVM IR module for NVPTX, not yet optimised."""
    context.sources.update(source_files(module))
    return lower_module(module, features_of(context.target), context.options)
