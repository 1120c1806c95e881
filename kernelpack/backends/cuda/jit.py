"""Loads CUDA images into this process, for launches from Python on torch's current stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelpack.runtime.loaded import LoadedKernel


class LoadedImage(LoadedKernel):
    """A cubin; the driver loads it at the first launch."""

    def place(self, values: Sequence[Any]) -> tuple[int, int]:
        import torch

        index = next((value.device.index for value in values if hasattr(value, "data_ptr")), None)
        if index is None:
            index = torch.cuda.current_device()
        # the stream's number alone: making the object that current_stream returns takes longer than the launch's other steps
        return index, torch._C._cuda_getCurrentRawStream(index)
