"""The CUDA backend: ttir -> ttgir -> LLVM IR -> PTX -> cubin."""

from kernelpack.backends.cuda.backend import CUDABackend

__all__ = ["CUDABackend"]
