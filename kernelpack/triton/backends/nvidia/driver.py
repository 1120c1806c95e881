"""triton.backends.nvidia.driver: what host code asks of NVIDIA's GPUs."""

from kernelpack.refusals import refused_names
from kernelpack.runtime.driver import CUDADriver as CudaDriver

__all__ = ["CudaDriver"]

__getattr__ = refused_names(__name__)
