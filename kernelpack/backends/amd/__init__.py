"""The AMD backend: ttir -> ttgir -> LLVM IR -> GCN assembly -> object -> hsaco. It only generates code, which was never run on hardware."""

from kernelpack.backends.amd.backend import AMDBackend

__all__ = ["AMDBackend"]
