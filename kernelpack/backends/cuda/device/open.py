"""Places launches from Python of CUDA kernels: on the device of their tensors, and torch's current stream."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from kernelpack.backends.base import Opened
from kernelpack.compiled import CompiledKernel
from kernelpack.errors import LaunchError


def open_image(kernel: CompiledKernel) -> Opened:
    """Returns a kernel's cubin; the driver loads it at the first launch."""
    return Opened(kernel.image, functools.partial(_place, kernel))


def _place(kernel: CompiledKernel, values: Sequence[Any]) -> tuple[int, int]:
    """Returns the number of the device of a launch's tensors, and its stream. Raises LaunchError for tensors of two devices."""
    import torch

    names = [parameter.name for parameter in kernel.parameters]
    tensors = [(name, value) for name, value in zip(names, values, strict=True) if hasattr(value, "device")]
    if not tensors:
        index = torch.cuda.current_device()
        return index, torch._C._cuda_getCurrentRawStream(index)
    first, device = tensors[0][0], tensors[0][1].device
    for name, value in tensors[1:]:
        # memory of the host that is pinned, a GPU reads
        if value.device != device and not (value.device.type == "cpu" and value.is_pinned()):
            raise LaunchError(
                f"{kernel.entry}: {name} is on {value.device}, {first} is on {device}",
                cure="move all tensors to one device",
            )
    index = device.index
    # the stream's number alone: making the object that current_stream returns takes longer than the launch's other steps
    return index, torch._C._cuda_getCurrentRawStream(index)
