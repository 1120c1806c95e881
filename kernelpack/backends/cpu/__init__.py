"""The CPU backend: ttir -> tile loops -> LLVM IR -> object, for several instruction-set levels."""

from kernelpack.backends.cpu.backend import CPUBackend

__all__ = ["CPUBackend"]
