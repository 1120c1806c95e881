"""What a call of an op is made of, in the accuracy grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Typed:
    """A tensor argument whose dtype is not that of the case."""

    tensor: torch.Tensor
