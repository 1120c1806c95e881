"""Every launch of the CUDA backend's table computes on a GPU what torch does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.backends.cuda.cases import cases
from tests.backends.cuda.launch import Case
from tests.gpu.launcher import LoadedCubin
from tests.gpu.packs import kernel_of

GUARD = 64
"""Elements before and after every tensor that the kernel must leave alone."""


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_computes_what_torch_does(case: Case, packs: Path | None) -> None:
    launch = case.launch()
    kernel = kernel_of(case.name, packs)
    loaded = LoadedCubin(kernel)
    for _ in range(2):  # what differs between runs is a race
        guarded = {name: _Guarded(value) for name, value in launch.arguments.items() if isinstance(value, torch.Tensor)}
        arguments = {name: guarded[name].inner if name in guarded else value for name, value in launch.arguments.items()}
        names = [parameter.name for parameter in kernel.parameters]
        loaded.launch((*launch.grid, 1, 1)[:3], [arguments[name] for name in names])
        torch.cuda.synchronize()
        launch.check(arguments)
        for name, tensor in guarded.items():
            assert tensor.is_intact(), f"the kernel wrote outside {name}"


class _Guarded:
    """A copy of a tensor on the GPU, of the same strides and alignment, between two guards."""

    def __init__(self, tensor: torch.Tensor) -> None:
        size = 1 + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
        shift = tensor.data_ptr() % 64 // tensor.element_size()
        self.start, self.end = GUARD + shift, GUARD + shift + size
        bits = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
        raw = torch.full((self.end + GUARD,), 0x5A, dtype=bits)
        flat = torch.as_strided(raw.view(tensor.dtype), tensor.shape, tensor.stride(), self.start)
        flat.copy_(tensor)
        self.raw = raw.cuda()
        self.inner = torch.as_strided(self.raw.view(tensor.dtype), tensor.shape, tensor.stride(), self.start)

    def is_intact(self) -> bool:
        raw = self.raw.cpu()
        outside = torch.cat([raw[: self.start], raw[self.end :]])
        return bool((outside == 0x5A).all())
