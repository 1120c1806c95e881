"""Attention: torch.ops.kernelpack.mha beside torch's scaled_dot_product_attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.measure import DTYPES, FAST_MKL, OURS, Case, Prepared
from benchmarks.report import main

_BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def cases(device: str, quick: bool) -> Sequence[Case]:
    if quick:
        return list(_cases(device, ["fp32"], [64], [128], [1]))
    if device == "cpu":
        return list(_cases(device, ["fp32", "bf16"], [64, 128], [1024, 4096], [1, 2]))
    return [
        *_cases(device, ["bf16"], [64, 128, 256], [1024, 4096, 16384], [1]),
        *_cases(device, ["fp32"], [64, 128], [4096], [1]),
    ]


def _cases(device: str, dtypes: list[str], head_sizes: list[int], lengths: list[int], threads: list[int]) -> Iterator[Case]:
    for dtype, head, length, causal, count in product(dtypes, head_sizes, lengths, (False, True), threads):
        # on a GPU, as is usual: 16k tokens of 2048 features
        batch, heads = (1, 8) if device == "cpu" else (16384 // length, 2048 // head)
        name = f"{dtype} d{head} s{length} {'causal' if causal else 'full'}" + (f" {count}t" if device == "cpu" else "")
        operations = 4 * batch * heads * length * length * head / (2 if causal else 1)
        unit, scale = ("GFLOP/s", 1e9) if device == "cpu" else ("TFLOP/s", 1e12)
        peers = ("stock torch", FAST_MKL) if device == "cpu" else ("cudnn", "flash") if dtype == "bf16" else ("stock torch",)
        arguments = {"shape": (batch, heads, length, head), "dtype": dtype, "causal": causal}
        yield Case(name, unit, operations / scale, device, peers, "mha", count, arguments)


def prepare(case: Case) -> Prepared:
    shape, dtype, causal = case.arguments["shape"], DTYPES[case.arguments["dtype"]], case.arguments["causal"]

    def inputs() -> tuple[torch.Tensor, ...]:
        return tuple(torch.randn(shape, device=case.device, dtype=dtype) for _ in range(3))

    def ours(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return torch.ops.kernelpack.mha(query, key, value, is_causal=causal)

    def stock(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(query, key, value, is_causal=causal)

    def by(backend: SDPBackend) -> Callable[..., torch.Tensor]:
        def call(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            with sdpa_kernel(backend):
                return stock(query, key, value)

        return call

    contenders = {OURS: ours, "stock torch": stock, FAST_MKL: stock}
    return Prepared(inputs, contenders | {name: by(backend) for name, backend in _BACKENDS.items()})


if __name__ == "__main__":
    main("benchmarks.attention")
