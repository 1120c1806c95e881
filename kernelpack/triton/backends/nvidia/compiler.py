"""triton.backends.nvidia.compiler: what compiles for NVIDIA's GPUs."""

from kernelpack.backends.cuda.assemble.toolchain import get_ptxas as get_ptxas
from kernelpack.compiler.target_backend import TargetOptions as CUDAOptions
from kernelpack.runtime.device_kinds import CUDABackend as CUDABackend

__all__ = ["CUDABackend", "CUDAOptions", "get_ptxas"]
