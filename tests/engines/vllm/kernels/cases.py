"""A case: a launcher of vLLM called with shapes of serving, and what torch makes of the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

Pair = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Case:
    """`run` yields what kernels gave and what is expected. `tolerance` is the distance allowed, relative to the largest value expected."""

    name: str
    shape: str
    tolerance: float
    run: Callable[[], Iterator[Pair]]


CASES: list[Case] = []


def case(
    name: str, shape: str, tolerance: float = 1e-2
) -> Callable[[Callable[[], Iterator[Pair]]], Callable[[], Iterator[Pair]]]:
    """Decorator: adds a case to CASES. bfloat16 has a distance of 0.4 % between neighbours."""

    def add(run: Callable[[], Iterator[Pair]]) -> Callable[[], Iterator[Pair]]:
        CASES.append(Case(name, shape, tolerance, run))
        return run

    return add


def normal(*sizes: int, dtype: torch.dtype = torch.bfloat16, scale: float = 1.0) -> torch.Tensor:
    """Returns normally distributed numbers."""
    return (torch.randn(*sizes) * scale).to(dtype)


def distance(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """Returns the largest difference by the largest value expected; infinite where shapes or what is not finite differ."""
    if got.shape != wanted.shape:
        return float("inf")
    got, wanted = got.double(), wanted.double()
    finite = wanted.isfinite()
    if not torch.equal(finite, got.isfinite()) or not torch.equal(got[~finite], wanted[~finite]):
        return float("inf")
    if not finite.any():
        return 0.0
    return float((got - wanted)[finite].abs().max() / wanted[finite].abs().max().clamp(min=1e-6))
