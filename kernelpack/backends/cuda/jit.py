"""Loads CUDA images into this process, for launches from Python on torch's current stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelpack.errors import LaunchError
from kernelpack.runtime.loaded import LoadedKernel


class LoadedImage(LoadedKernel):
    """A cubin; the driver loads it at the first launch."""

    def place(self, values: Sequence[Any]) -> tuple[int, int]:
        import torch

        names = [parameter.name for parameter in self.kernel.parameters]
        tensors = [(name, value) for name, value in zip(names, values, strict=True) if hasattr(value, "device")]
        if not tensors:
            index = torch.cuda.current_device()
            return index, torch._C._cuda_getCurrentRawStream(index)
        first, device = tensors[0][0], tensors[0][1].device
        for name, value in tensors[1:]:
            # memory of the host that is pinned, a GPU reads
            if value.device != device and not (value.device.type == "cpu" and value.is_pinned()):
                raise LaunchError(
                    f"{self.kernel.entry}: {name} is on {value.device}, {first} is on {device}",
                    cure="move all tensors to one device",
                )
        index = device.index
        # the stream's number alone: making the object that current_stream returns takes longer than the launch's other steps
        return index, torch._C._cuda_getCurrentRawStream(index)
