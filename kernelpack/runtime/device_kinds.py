"""Which kinds of devices kernels can be compiled for and run on, by Triton's names."""

from __future__ import annotations

from typing import NamedTuple

from kernelpack.backends import base
from kernelpack.backends.cpu import CPUBackend
from kernelpack.backends.cuda import CUDABackend
from kernelpack.runtime.driver import CPUDriver, CUDADriver, DriverBase


class Backend(NamedTuple):
    """The class that compiles for a kind of device, and the one of its driver."""

    compiler: type[base.Backend]
    driver: type[DriverBase]


backends = {"nvidia": Backend(CUDABackend, CUDADriver), "cpu": Backend(CPUBackend, CPUDriver)}
"""By Triton's names. Exactly one driver is active: that of the devices on which kernels run unless told otherwise."""
