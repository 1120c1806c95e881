"""triton.backends.driver: the drivers of devices."""

from kernelpack.runtime.driver import CUDADriver as GPUDriver
from kernelpack.runtime.driver import DriverBase as DriverBase

__all__ = ["DriverBase", "GPUDriver"]
