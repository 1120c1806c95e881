"""What vLLM's kernels are given."""

from __future__ import annotations

import torch


def normal(*sizes: int, dtype: torch.dtype = torch.bfloat16, scale: float = 1.0) -> torch.Tensor:
    """Returns normally distributed numbers."""
    return (torch.randn(*sizes) * scale).to(dtype)
