"""triton.backends.nvidia.driver: what host code asks of NVIDIA's GPUs."""

from kernelpack.backends.cuda.device.host_driver import CUDADriver as CudaDriver
from kernelpack.refusals import refused_names

__all__ = ["CudaDriver"]

__getattr__ = refused_names(__name__)
