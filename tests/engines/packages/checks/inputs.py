"""What the packages' functions are given, and the results and gradients that are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from tests.engines.cases import Pair


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
