"""Refuses gradients of ops that Python runs, as built ops do: the call works, and whoever asks it for a gradient is told that it has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_CURE = "\n  to fix: call it under torch.no_grad(); of the built op, torch.library.register_autograd can make a gradient"


def refusing_gradients(name: str, run: Callable[[Mapping[str, Any]], Any], values: Mapping[str, Any], *, writes: bool) -> Any:
    """Returns `run(values)`. Where autograd follows tensors among the values, whoever computes a gradient of the results gets
    RuntimeError; an op that `writes` to its arguments raises it at once. Raises NotImplementedError for tensors with tangents."""
    import torch
    from torch.autograd import forward_ad

    parts_of: Any = forward_ad.unpack_dual
    tensors = {key: value for key, value in values.items() if isinstance(value, torch.Tensor)}
    for value in tensors.values():
        if forward_ad._current_level >= 0 and parts_of(value).tangent is not None:
            raise NotImplementedError(
                f"{name} has no forward-mode gradient\n  to fix: call it with tensors that have no tangent"
            )
    if not torch.is_grad_enabled() or not any(value.requires_grad for value in tensors.values()):
        return run(values)
    if writes:
        raise RuntimeError(f"{name} has no gradient, and writes to its arguments{_CURE}")

    class WithoutGradient(torch.autograd.Function):
        @staticmethod
        def forward(*inputs: Any) -> Any:
            return run({**values, **dict(zip(tensors, inputs, strict=True))})

        @staticmethod
        def setup_context(context: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            raise RuntimeError(f"{name} has no gradient{_CURE}")

    recorded: Any = WithoutGradient.apply
    return recorded(*tensors.values())
