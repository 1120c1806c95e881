"""What host code asks of this machine's CPU."""

from __future__ import annotations

import os
from typing import Any

from kernelpack.backends.cpu.facts.features import native_target
from kernelpack.backends.devices import DriverBase
from kernelpack.backends.installed import drivers
from kernelpack.target import GPUTarget

WARP_SIZE = 32
"""CPUs have no warps. They answer what most GPUs do: host code divides numbers of threads by it."""
REGISTERS = 65536
"""Likewise, of a multiprocessor."""


class CPUDriver(DriverBase):
    """This machine's CPU. Its cores are the multiprocessors; it has no shared memory to run out of."""

    device_type = "cpu"

    @classmethod
    def is_active(cls) -> bool:
        """Whether this machine has no other devices."""
        return not any(other.is_active() for other in drivers() if other.device_type != cls.device_type)

    def get_current_target(self) -> GPUTarget:
        return GPUTarget.of(native_target())

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        cores = len(os.sched_getaffinity(0))
        return {"multiprocessor_count": cores, "max_shared_mem": 1 << 20, "max_num_regs": REGISTERS, "warpSize": WARP_SIZE}
