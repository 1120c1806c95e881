"""What host code asks of torch's current CUDA device."""

from __future__ import annotations

from typing import Any

from kernelpack.backends.cuda.device.driver import is_installed
from kernelpack.backends.cuda.machine.features import LANES
from kernelpack.backends.devices import DriverBase
from kernelpack.target import GPUTarget


class CUDADriver(DriverBase):
    """The current CUDA device of torch."""

    device_type = "cuda"

    @classmethod
    def is_installed(cls) -> bool:
        return is_installed()

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
        return GPUTarget("cuda", major * 10 + minor, LANES)

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
