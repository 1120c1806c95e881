"""The CUDA backend: ttir -> ttgir -> LLVM IR -> PTX -> cubin."""

from typing import TYPE_CHECKING

from kernelpack.lazy import lazy_names

if TYPE_CHECKING:
    from kernelpack.backends.cuda.backend import CUDABackend

__all__ = ["CUDABackend"]

# drivers lie in this room too, and need nothing that compiles
__getattr__ = lazy_names(__name__, {"backends.cuda.backend": ("CUDABackend",)})
