"""triton.backends: which kinds of devices kernels can be compiled for and run on."""

from typing import TYPE_CHECKING

from kernelpack.lazy import lazy_names
from kernelpack.triton.backends import compiler as compiler
from kernelpack.triton.backends import driver as driver
from kernelpack.triton.backends.driver import DriverBase as DriverBase

if TYPE_CHECKING:
    from kernelpack.runtime.device_kinds import Backend as Backend
    from kernelpack.runtime.device_kinds import backends as backends

__getattr__ = lazy_names(__name__, {"runtime.device_kinds": ("Backend", "backends")})  # they need LLVM
