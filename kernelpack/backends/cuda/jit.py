"""Loads CUDA images into this process, for launches from Python on torch's current stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelpack.runtime.loaded import LoadedKernel


class LoadedImage(LoadedKernel):
    """A cubin; the driver loads it at the first launch."""

    def place(self, values: Sequence[Any]) -> tuple[int, int]:
        import torch

        device = next((value.device for value in values if isinstance(value, torch.Tensor)), torch.device("cuda"))
        index = torch.cuda.current_device() if device.index is None else device.index
        return index, torch.cuda.current_stream(index).cuda_stream
