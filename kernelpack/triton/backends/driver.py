"""triton.backends.driver: the drivers of devices."""

from kernelpack.backends.cuda.device.host_driver import CUDADriver as GPUDriver
from kernelpack.backends.devices import DriverBase as DriverBase

__all__ = ["DriverBase", "GPUDriver"]
