"""Attention: torch.ops.kernelpack.mha beside torch's scaled_dot_product_attention, and on GPUs beside FlashAttention 3, which is given
its own order of dimensions, if benchmarks/vllm_libraries.py has got it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks import vllm_libraries
from benchmarks.measure import DTYPES, FAST_MKL, OURS, Case, Prepared, cpu_threads
from benchmarks.report import main
from benchmarks.vllm_libraries import FLASH_ATTENTION

_BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def cases(device: str, quick: bool) -> Sequence[Case]:
    if quick:
        return list(_cases(device, ["fp32"], [64], [128], [1]))
    if device == "cpu":
        return [
            *_cases(device, ["fp32", "bf16"], [64, 128], [1024, 4096], cpu_threads()),
            *_cases(device, ["bf16"], [64, 128], [8192], cpu_threads()),
        ]
    return [
        *_cases(device, ["bf16"], [64, 128, 256], [512, 1024, 2048, 4096, 8192, 16384], [1]),
        *_cases(device, ["bf16"], [128], [1024, 4096], [1], key_heads=4),
        *_cases(device, ["bf16"], [128], [1024, 4096], [1], layout="bshd"),
        *_cases(device, ["fp32"], [64, 128], [4096], [1]),
    ]


def _cases(
    device: str,
    dtypes: list[str],
    head_sizes: list[int],
    lengths: list[int],
    threads: list[int],
    key_heads: int | None = None,
    layout: str = "bhsd",
) -> Iterator[Case]:
    """`key_heads` less than the heads are shared; `layout` is the order of dimensions in memory."""
    for dtype, head, length, causal, count in product(dtypes, head_sizes, lengths, (False, True), threads):
        # on a GPU, as is usual: 16k tokens of 2048 features
        batch, heads = (1, 8) if device == "cpu" else (16384 // length, 2048 // head)
        name = f"{dtype} d{head} s{length} {'causal' if causal else 'full'}" + (f" {count}t" if device == "cpu" else "")
        name += (f" {key_heads} key heads" if key_heads is not None else "") + (" bshd" if layout == "bshd" else "")
        operations = 4 * batch * heads * length * length * head / (2 if causal else 1)
        unit, scale = ("GFLOP/s", 1e9) if device == "cpu" else ("TFLOP/s", 1e12)
        peers: tuple[str, ...] = ("stock torch", FAST_MKL) if device == "cpu" else ("stock torch",)
        if device == "cuda" and dtype == "bf16":
            peers = ("cudnn", "flash", *vllm_libraries.peers("_vllm_fa3_C", FLASH_ATTENTION))
        shape = (batch, heads, length, head)
        arguments = {"shape": shape, "dtype": dtype, "causal": causal, "key_heads": key_heads or heads, "layout": layout}
        yield Case(name, unit, operations / scale, device, peers, "mha", count, arguments)


def prepare(case: Case) -> Prepared:
    (batch, heads, length, head), dtype = case.arguments["shape"], DTYPES[case.arguments["dtype"]]
    causal, key_heads, bshd = case.arguments["causal"], case.arguments["key_heads"], case.arguments["layout"] == "bshd"
    shared = key_heads != heads

    def make(count: int) -> torch.Tensor:
        shape = (batch, length, count, head) if bshd else (batch, count, length, head)
        made = torch.randn(shape, device=case.device, dtype=dtype)
        return made.transpose(1, 2) if bshd else made

    def inputs() -> tuple[torch.Tensor, ...]:
        """Returns query, key and value, and for FlashAttention 3 the same as [batch * length, heads, head]."""
        own = make(heads), make(key_heads), make(key_heads)
        return own + tuple(x.transpose(1, 2).flatten(0, 1).contiguous() for x in own if FLASH_ATTENTION in case.peers)

    def ours(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        return torch.ops.kernelpack.mha(query, key, value, is_causal=causal, enable_gqa=shared)

    def stock(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=shared)

    def by(backend: SDPBackend) -> Callable[..., torch.Tensor]:
        def call(*given: torch.Tensor) -> torch.Tensor:
            with sdpa_kernel(backend):
                return stock(*given)

        return call

    def flash_3(*given: torch.Tensor) -> torch.Tensor:
        packed = vllm_libraries.flash_attention(*given[3:], starts, length, length, causal=causal, key_starts=starts)
        return packed.unflatten(0, (batch, length)).transpose(1, 2)

    starts = torch.arange(0, batch * length + 1, length, device=case.device, dtype=torch.int32)
    contenders: dict[str, Callable[..., torch.Tensor]] = {
        OURS: ours,
        "stock torch": stock,
        FAST_MKL: stock,
        FLASH_ATTENTION: flash_3,
    }
    return Prepared(inputs, contenders | {name: by(backend) for name, backend in _BACKENDS.items()})


if __name__ == "__main__":
    main("benchmarks.attention")
