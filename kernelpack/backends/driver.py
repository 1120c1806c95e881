"""The drivers of devices, where code written for Triton imports them from."""

from kernelpack.runtime.driver import CUDADriver as GPUDriver
from kernelpack.runtime.driver import DriverBase as DriverBase

__all__ = ["DriverBase", "GPUDriver"]
