"""What host code asks of the devices that a backend's kernels run on, and may replace: a driver for each type of device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kernelpack.target import GPUTarget, Target
from kernelpack.testing import do_bench


class DriverBase:
    """What host code asks about one type of device: this class is what a driver has to offer."""

    device_type = ""
    """What torch calls the devices."""
    emulated_target: Target | None = None
    """Set by drivers that simulate: kernels are then compiled for this target, whatever device their tensors are on, and run by what
    `simulated` returns."""

    def simulated(self, fn: Any, special: Any, options: Any) -> Any:
        """Returns a kernel as it is for a specialization. Only for drivers that simulate."""
        raise NotImplementedError

    def host_value(self, value: Any) -> Any:
        """Returns an argument of an op as its host function sees it."""
        return value

    @classmethod
    def is_installed(cls) -> bool:
        """Whether this machine has the software that such devices need."""
        return True

    @classmethod
    def is_active(cls) -> bool:
        """Whether this machine has such devices, on which kernels run unless told otherwise."""
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
