"""kernelpack.backends.backends: what host code written for Triton asks which devices kernels can run on."""

from __future__ import annotations

from typing import NamedTuple

from kernelpack.backends import base
from kernelpack.backends.cpu import CPUBackend
from kernelpack.backends.cpu.device.driver import CPUDriver
from kernelpack.backends.cuda import CUDABackend
from kernelpack.backends.cuda.device.host_driver import CUDADriver
from kernelpack.backends.devices import DriverBase


class Backend(NamedTuple):
    """The class that compiles for a kind of device, and the one of its driver."""

    compiler: type[base.Backend]
    driver: type[DriverBase]


backends = {"nvidia": Backend(CUDABackend, CUDADriver), "cpu": Backend(CPUBackend, CPUDriver)}
"""By Triton's names. Exactly one driver is active: that of the devices on which kernels run unless told otherwise."""
