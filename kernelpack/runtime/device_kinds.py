"""Which kinds of devices kernels can be compiled for and run on, by Triton's names, and the backend for a target."""

from __future__ import annotations

from typing import NamedTuple

from kernelpack.backends.cpu.device.driver import CPUDriver
from kernelpack.backends.cuda.device.host_driver import CUDADriver
from kernelpack.backends.devices import DriverBase
from kernelpack.compiler.target_backend import TargetBackend
from kernelpack.target import GPUTarget, Target


class CUDABackend(TargetBackend):
    """Compiles for one NVIDIA GPU."""

    kind = "cuda"


class CPUBackend(TargetBackend):
    """Compiles for one level of CPUs."""

    kind = "cpu"


class Backend(NamedTuple):
    """The class that compiles for a kind of device, called with a target, and the one of its driver."""

    compiler: type[TargetBackend]
    driver: type[DriverBase]


_KINDS = {"nvidia": Backend(CUDABackend, CUDADriver), "cpu": Backend(CPUBackend, CPUDriver)}
"""Kernels are compiled for all of them on every machine."""
backends = {name: kind for name, kind in _KINDS.items() if kind.driver.is_installed()}
"""Those that this machine can run. Exactly one driver is active: that of the devices on which kernels run unless told otherwise."""


def make_backend(target: GPUTarget | Target) -> TargetBackend:
    """Returns the backend that compiles for a target. Raises TargetError for one that no backend builds."""
    kinds = (kind.compiler for kind in _KINDS.values() if kind.compiler.kind == target.backend)
    return next(kinds, TargetBackend)(target)
