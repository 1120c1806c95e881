"""ttgir -> LLVM IR text."""

from __future__ import annotations

from kernelpack.backends.base import Lowered
from kernelpack.backends.cuda.architectures import architecture_of
from kernelpack.backends.cuda.lowering import lower_module
from kernelpack.ir.core import Operation
from kernelpack.llvm.debug_info import source_files


def ttgir_to_llir(module: Operation, lowered: Lowered) -> str:
    """Returns the kernel as an LLVM IR module for NVPTX, not yet optimised."""
    lowered.sources.update(source_files(module))
    return lower_module(module, architecture_of(lowered.target), lowered.options)
