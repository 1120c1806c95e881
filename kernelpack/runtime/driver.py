"""kernelpack.runtime.driver.active: which device kernels are launched on, and what host code asks about it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernelpack import knobs
from kernelpack.backends.installed import backends, native_target
from kernelpack.errors import OptionError, TargetError
from kernelpack.target import GPUTarget, Target
from kernelpack.testing import do_bench

if TYPE_CHECKING:
    from kernelpack.kernel.jit import JITFunction
    from kernelpack.options import Options
    from kernelpack.runtime.kernel_view import LaunchableKernel
    from kernelpack.runtime.specialization import Specialization

REGISTERS_OF_AN_SM = 65536
WARP_SIZE = 32
"""Threads of a warp. Drivers of CPUs answer the same: host code divides numbers of threads by it."""


class DriverBase:
    """What host code asks about one type of device, and may replace: this class is what a driver has to offer."""

    device_type = ""
    emulated_target: Target | None = None
    """Set by drivers that simulate: kernels are then compiled for this target, whatever device their tensors are on, and run by what
    `simulated` returns."""

    def simulated(self, fn: JITFunction, special: Specialization, options: Options) -> LaunchableKernel:
        """Returns a kernel as it is for a specialization. Only for drivers that simulate."""
        raise NotImplementedError

    def host_value(self, value: Any) -> Any:
        """Returns an argument of an op as its host function sees it."""
        return value

    @classmethod
    def is_active(cls) -> bool:
        """Whether kernels run on this type of device unless told otherwise."""
        raise NotImplementedError

    def get_current_target(self) -> GPUTarget:
        """Returns what kernels are compiled for."""
        raise NotImplementedError

    def get_active_torch_device(self) -> Any:
        raise NotImplementedError

    def get_device_interface(self) -> Any:
        """Returns torch's module of the device: torch.cuda, torch.cpu."""
        import torch

        return getattr(torch, self.device_type)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_benchmarker(self) -> Callable[..., Any]:
        return functools.partial(do_bench, device=self.device_type)

    def get_empty_cache_for_benchmark(self) -> Any:
        """Returns memory larger than the last cache, which clear_cache overwrites between calls."""
        import torch

        return torch.empty(256 << 20, dtype=torch.int8, device=self.get_active_torch_device())

    def clear_cache(self, cache: Any) -> None:
        cache.zero_()

    @property
    def utils(self) -> DriverBase:
        return self

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        """Returns the device's figures: multiprocessor_count, max_shared_mem, max_num_regs, warpSize."""
        raise NotImplementedError


class CPUDriver(DriverBase):
    """This machine's CPU. Its cores are the multiprocessors; it has no shared memory to run out of."""

    device_type = "cpu"

    @classmethod
    def is_active(cls) -> bool:
        return not CUDADriver.is_active()

    def get_current_target(self) -> GPUTarget:
        return GPUTarget.of(native_target(backends()["cpu"]))

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        cores = len(os.sched_getaffinity(0))
        return {
            "multiprocessor_count": cores,
            "max_shared_mem": 1 << 20,
            "max_num_regs": REGISTERS_OF_AN_SM,
            "warpSize": WARP_SIZE,
        }


class CUDADriver(DriverBase):
    """The current CUDA device of torch."""

    device_type = "cuda"

    @classmethod
    def is_active(cls) -> bool:
        import torch

        return torch.cuda.is_available()

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        import torch

        major, minor = torch.cuda.get_device_capability(device)
        return major, minor

    def get_current_target(self) -> GPUTarget:
        major, minor = self.get_device_capability()
        return GPUTarget("cuda", major * 10 + minor, WARP_SIZE)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", self.get_current_device())

    def get_current_device(self) -> int:
        import torch

        return torch.cuda.current_device()

    def set_current_device(self, device: int) -> None:
        import torch

        torch.cuda.set_device(device)

    def get_current_stream(self, device: int | None = None) -> int:
        import torch

        return int(torch.cuda.current_stream(device).cuda_stream)

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        import torch

        found: Any = torch.cuda.get_device_properties(device)
        return {
            "multiprocessor_count": found.multi_processor_count,
            "max_shared_mem": found.shared_memory_per_block_optin,
            "max_num_regs": found.regs_per_multiprocessor,
            "warpSize": found.warp_size,
        }


class _Drivers:
    """`active` is the driver in use: the one that was set, or else the default, which is found when first asked for."""

    def __init__(self) -> None:
        self._default: DriverBase | None = None
        self._active: DriverBase | None = None

    @property
    def default(self) -> DriverBase:
        if self._default is None:
            self._default = _default_driver()
        return self._default

    @property
    def active(self) -> DriverBase:
        if self._active is None and knobs.runtime.interpret:
            return _interpreter()
        return self._active or self.default

    def set_active(self, driver: DriverBase) -> None:
        self._active = driver

    def reset_active(self) -> None:
        self._active = None

    def replace(self, driver: DriverBase | None) -> DriverBase | None:
        """Makes a driver the active one (None: the default), and returns the one that was set before."""
        before, self._active = self._active, driver
        return before


@functools.cache
def _interpreter() -> DriverBase:
    from kernelpack.runtime.interpreter import Interpreter  # late: it is a driver itself

    return Interpreter()


def _default_driver() -> DriverBase:
    if target := knobs.EMULATE.get():
        from kernelpack.simt.emulator import Emulator  # late: it is a driver itself

        try:
            return Emulator(target)
        except TargetError as problem:
            known = ", ".join(map(str, backends()["cuda"].targets()))
            raise OptionError(
                f"{knobs.EMULATE.name}={target}: {problem.message}", cure=f"set it to one of {known}, or unset it"
            ) from None
    return CUDADriver() if CUDADriver.is_active() else CPUDriver()


driver = _Drivers()
