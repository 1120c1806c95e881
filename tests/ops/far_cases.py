"""Calls whose tensors reach further than 2^31 elements, though few of these are read: index arithmetic of 32 bits would go wrong."""

from __future__ import annotations

import torch

from tests.ops.grid import Arguments

BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn
STEP = 2**31 + 64
"""Elements from one entry of the first dimension to the next."""


def far(*shape: int, dtype: torch.dtype = BF16, device: str = "cpu") -> torch.Tensor:
    """Random numbers, each entry of the first dimension so far from the one before; memory between is never touched."""
    strides = torch.empty(shape[1:], device="meta").stride()
    flat = torch.empty(STEP * (shape[0] - 1) + torch.Size(shape[1:]).numel(), dtype=dtype, device=device)
    x = flat.as_strided(shape, (STEP, *strides))
    x.copy_(torch.randn(shape))
    return x


def far_calls(device: str = "cpu") -> dict[str, tuple[str, Arguments]]:
    """Returns op and arguments of each call, by name. `decode` names calls that GPUs have kernels of their own for."""

    def one(*shape: int) -> torch.Tensor:
        return far(*shape, device=device)

    def near(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device).to(BF16)

    def scaled() -> Arguments:
        weight = far(2, 48, dtype=E4M3, device=device)
        scale = torch.tensor(0.5, device=device)
        return (far(2, 48, dtype=E4M3, device=device), weight.t(), scale, scale), {}

    return {
        "softmax": ("softmax", ((one(2, 100),), {})),
        "rms_norm": ("rms_norm", ((one(2, 100),), {})),
        "layer_norm": ("layer_norm", ((one(2, 100),), {})),
        "gelu": ("gelu", ((one(2, 100),), {})),
        "silu_mul": ("silu_mul", ((one(2, 100), one(2, 100)), {})),
        "rope": ("rope", ((one(2, 3, 5, 16), one(2, 1, 5, 8), one(2, 1, 5, 8)), {})),
        "mha by batch": ("mha", ((one(2, 1, 9, 32), one(2, 1, 70, 32), one(2, 1, 70, 32), one(2, 1, 9, 70)), {})),
        "mha by key": ("mha", ((near(1, 1, 65, 64), *(one(2, 64).view(1, 1, 2, 64) for _ in range(2))), {})),
        "mha decode": ("mha", ((one(2, 2, 1, 64), one(2, 2, 300, 64), one(2, 2, 300, 64)), {})),
        "matmul": ("matmul", ((one(2, 40), near(40, 20)), {})),
        "matmul by depth": ("matmul", ((near(70, 2), one(2, 32)), {})),
        "matmul by column": ("matmul", ((near(3, 40), one(2, 40).t()), {})),
        "matmul by batch": ("matmul", ((one(2, 70, 64), one(2, 64, 48)), {})),
        "scaled_matmul": ("scaled_matmul", scaled()),
    }
