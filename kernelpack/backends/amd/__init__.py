"""The AMD backend: ttir -> ttgir -> LLVM IR -> GCN assembly -> object -> hsaco. It only generates code, which was never run on hardware."""

from typing import TYPE_CHECKING

from kernelpack.lazy import lazy_names

if TYPE_CHECKING:
    from kernelpack.backends.amd.backend import AMDBackend

__all__ = ["AMDBackend"]

# imported when a kernel is compiled for it
__getattr__ = lazy_names(__name__, {"backends.amd.backend": ("AMDBackend",)})
