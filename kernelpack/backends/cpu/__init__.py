"""The CPU backend: ttir -> tile loops -> LLVM IR -> object, for several instruction-set levels."""

from typing import TYPE_CHECKING

from kernelpack.lazy import lazy_names

if TYPE_CHECKING:
    from kernelpack.backends.cpu.backend import CPUBackend

__all__ = ["CPUBackend"]

# drivers lie in this room too, and need nothing that compiles
__getattr__ = lazy_names(__name__, {"backends.cpu.backend": ("CPUBackend",)})
