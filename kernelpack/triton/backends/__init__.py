"""triton.backends: which kinds of devices kernels can be compiled for and run on."""

from kernelpack.compiler.target_backend import TargetBackend as BaseBackend
from kernelpack.runtime.device_kinds import Backend as Backend
from kernelpack.runtime.device_kinds import backends as backends
from kernelpack.triton.backends import compiler as compiler
from kernelpack.triton.backends import driver as driver
from kernelpack.triton.backends.driver import DriverBase as DriverBase

__all__ = ["Backend", "BaseBackend", "DriverBase", "backends", "compiler", "driver"]
