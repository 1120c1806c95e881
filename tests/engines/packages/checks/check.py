"""A check: a package's own function called on CPU tensors, and what it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tests.engines.vllm.kernels.cases import Pair, distance

__all__ = ["CHECKS", "Check", "Pair", "check", "distance", "gradients", "normal", "uniform"]


@dataclass(frozen=True)
class Check:
    """`run` yields what kernels gave and what is expected. `tolerance` is the distance allowed, relative to the largest value expected."""

    package: str
    what: str
    tolerance: float
    run: Callable[[], Iterator[Pair]]


CHECKS: list[Check] = []


def check(package: str, what: str, tolerance: float) -> Callable[[Callable[[], Iterator[Pair]]], Callable[[], Iterator[Pair]]]:
    """Decorator: adds a check of a package, by its name on PyPI, to CHECKS."""

    def add(run: Callable[[], Iterator[Pair]]) -> Callable[[], Iterator[Pair]]:
        CHECKS.append(Check(package, what, tolerance, run))
        return run

    return add


def normal(*sizes: int, scale: float = 1.0) -> torch.Tensor:
    """Returns normally distributed numbers in float32."""
    return torch.randn(*sizes) * scale


def uniform(*sizes: int) -> torch.Tensor:
    """Returns numbers between 0 and 1 in float32."""
    return torch.rand(*sizes)


def gradients(function: Callable[..., Any], reference: Callable[..., Any], *inputs: Any) -> Iterator[Pair]:
    """Yields the results of two functions, and the gradients of each input that is a tensor of floats, under the same output gradients."""
    yield from zip(_both_passes(function, inputs), _both_passes(reference, inputs), strict=True)


def _both_passes(function: Callable[..., Any], inputs: tuple[Any, ...]) -> list[torch.Tensor]:
    given = [x.detach().clone() if isinstance(x, torch.Tensor) else x for x in inputs]
    leaves = [x.requires_grad_() for x in given if isinstance(x, torch.Tensor) and x.is_floating_point()]
    results = function(*given)
    results = [results] if isinstance(results, torch.Tensor) else list(results)
    kept = [result.detach().clone() for result in results]  # some kernels write gradients over results
    random = torch.Generator().manual_seed(1)
    upstream = [torch.randn(result.shape, generator=random).to(result.dtype) for result in results]
    return [*kept, *torch.autograd.grad(results, leaves, upstream)]
