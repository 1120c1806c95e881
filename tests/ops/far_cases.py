"""Calls whose tensors reach further than 2^31 elements, though few of these are read: index arithmetic of 32 bits would go wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tests.ops.arguments import Arguments
from tests.ops.functional import module_of, results_of, written
from tests.ops.layouts import steps_apart

BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn
STEP = 2**31 + 64
"""Elements from one entry of the first dimension to the next."""


@dataclass(frozen=True)
class Tensors:
    """Makes random tensors on a device."""

    device: str

    def near(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, device=self.device).to(BF16)

    def far(self, *shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
        """Each entry of the first dimension lies so far from the one before; memory between is never touched."""
        strides = torch.empty(shape[1:], device="meta").stride()
        flat = torch.empty(STEP * (shape[0] - 1) + torch.Size(shape[1:]).numel(), dtype=dtype, device=self.device)
        x = flat.as_strided(shape, (STEP, *strides))
        x.copy_(torch.randn(shape))
        return x

    def scaled(self) -> Arguments:
        scale = torch.tensor(0.5, device=self.device)
        return (self.far(2, 48, dtype=E4M3), self.far(2, 48, dtype=E4M3).t(), scale, scale), {}

    def cached(self, cache: Callable[..., torch.Tensor], **given: torch.Tensor) -> Arguments:
        """A call of rope_and_cache that writes to two blocks of what `cache` makes."""
        rows = {"query": self.near(2, 3, 16), "key": self.near(2, 2, 16), "value": self.near(2, 2, 16)} | given
        positions, slots = (torch.tensor(numbers, device=self.device) for numbers in ([3, 1], [7, 2]))
        caches = [cache(2, 4, 2, 16) for _ in range(2)]
        return (*rows.values(), *caches, positions, torch.rand(5, 16, device=self.device), slots), {}


FAR_CALLS: dict[str, tuple[str, Callable[[Tensors], Arguments]]] = {
    "softmax": ("softmax", lambda of: ((of.far(2, 100),), {})),
    "rms_norm": ("rms_norm", lambda of: ((of.far(2, 100),), {})),
    "layer_norm": ("layer_norm", lambda of: ((of.far(2, 100),), {})),
    "add_rms_norm": ("add_rms_norm", lambda of: ((of.far(2, 100), of.near(2, 100), of.near(100)), {})),
    "add_rms_norm, residual": ("add_rms_norm", lambda of: ((of.near(2, 100), of.far(2, 100), of.near(100)), {})),
    "add_rms_norm_int8": ("add_rms_norm_int8", lambda of: ((of.far(2, 100), of.near(2, 100), of.near(100)), {})),
    "add_rms_norm_fp8": ("add_rms_norm_fp8", lambda of: ((of.near(2, 100), of.far(2, 100), of.near(100)), {})),
    "silu_and_mul": ("silu_and_mul", lambda of: ((of.far(2, 100),), {})),
    "gelu_and_mul": ("gelu_and_mul", lambda of: ((of.far(2, 100),), {})),
    "rope_and_cache, cache": ("rope_and_cache", lambda of: of.cached(of.far)),
    "rope_and_cache, tokens": (
        "rope_and_cache",
        lambda of: of.cached(of.near, query=of.far(2, 3, 16), key=of.far(2, 2, 16), value=of.far(2, 2, 16)),
    ),
    "embedding": ("embedding", lambda of: ((torch.tensor([1, 0, 1], device=of.device), of.far(2, 100)), {})),
    "copy_blocks": (
        "copy_blocks",
        lambda of: ((of.far(2, 4, 2, 16), of.near(2, 4, 2, 16), torch.tensor([[0, 1]], device=of.device)), {}),
    ),
    "sample": ("sample", lambda of: ((of.far(2, 100),), {"log_probabilities": True})),
    "gelu": ("gelu", lambda of: ((of.far(2, 100),), {})),
    "silu_mul": ("silu_mul", lambda of: ((of.far(2, 100), of.far(2, 100)), {})),
    "rope": ("rope", lambda of: ((of.far(2, 3, 5, 16), of.far(2, 1, 5, 8), of.far(2, 1, 5, 8)), {})),
    "mha by batch": (
        "mha",
        lambda of: ((of.far(2, 1, 9, 32), of.far(2, 1, 70, 32), of.far(2, 1, 70, 32), of.far(2, 1, 9, 70)), {}),
    ),
    "mha by key": ("mha", lambda of: ((of.near(1, 1, 65, 64), *(of.far(2, 64).view(1, 1, 2, 64) for _ in range(2))), {})),
    "mha decode": ("mha", lambda of: ((of.far(2, 2, 1, 64), of.far(2, 2, 300, 64), of.far(2, 2, 300, 64)), {})),
    "matmul": ("matmul", lambda of: ((of.far(2, 40), of.near(40, 20)), {})),
    "matmul by depth": ("matmul", lambda of: ((of.near(70, 2), of.far(2, 32)), {})),
    "matmul by column": ("matmul", lambda of: ((of.near(3, 40), of.far(2, 40).t()), {})),
    "matmul by batch": ("matmul", lambda of: ((of.far(2, 70, 64), of.far(2, 64, 48)), {})),
    "scaled_matmul": ("scaled_matmul", Tensors.scaled),
}
"""The op of each call, and what makes its arguments, 4 to 16 GiB of them: one call's at a time fit into a GPU. GPUs have kernels of
their own for `decode`."""


def check_far_call(name: str, device: str) -> None:
    """Holds a call's result to the reference's."""
    op, make = FAR_CALLS[name]
    args, kwargs = make(Tensors(device))
    near = [x.clone(memory_format=torch.preserve_format) if isinstance(x, torch.Tensor) else x for x in args]
    result = getattr(torch.ops.kernelpack, op)(*args, **kwargs)
    got = (*results_of(result), *(args[place] for place in written(op).values()))
    expected = results_of(module_of(op).reference(*near, **kwargs))
    for one, right in zip(got, expected, strict=True):
        assert one.dtype == right.dtype
        if one.element_size() == 1:
            assert int(steps_apart(one, right).max()) <= 1
        else:
            torch.testing.assert_close(one, right, atol=4e-2, rtol=3e-2)
