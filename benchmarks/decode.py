"""Decoding: one query, 32 heads over 8 key heads of size 128, beside torch's scaled_dot_product_attention and a copy.

The copy reads and writes together as many bytes as keys and values have: what attention would take at the speed of a copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import torch
import torch.nn.functional as F

from benchmarks.measure import OURS, Case, Prepared
from benchmarks.report import main

_COPY = "copy bandwidth"
_HEADS, _KEY_HEADS, _SIZE = 32, 8, 128


def cases(device: str, quick: bool) -> Sequence[Case]:
    if quick:
        return list(_cases(device, [1], [256]))
    if device == "cpu":
        return list(_cases(device, [1, 4], [1024, 8192]))
    return list(_cases(device, [1, 16, 64], [1024, 8192, 32768]))


def _cases(device: str, batches: list[int], lengths: list[int]) -> Iterator[Case]:
    for batch, keys in product(batches, lengths):
        gigabytes = 2 * batch * _KEY_HEADS * keys * _SIZE * 2 / 1e9
        for graph in (True, False) if batch == 1 and device == "cuda" else (device == "cuda",):
            name = f"bf16 batch {batch} keys {keys}" + ("" if graph or device == "cpu" else " eager")
            peers = ("stock torch",) if device == "cpu" else ("stock torch", _COPY)
            yield Case(name, "GB/s", gigabytes, device, peers, "mha", 1, {"batch": batch, "keys": keys}, graph)


def prepare(case: Case) -> Prepared:
    batch, keys = case.arguments["batch"], case.arguments["keys"]

    def inputs() -> tuple[torch.Tensor, ...]:
        def make(heads: int, length: int) -> torch.Tensor:
            return torch.randn(batch, heads, length, _SIZE, device=case.device, dtype=torch.bfloat16)

        return make(_HEADS, 1), make(_KEY_HEADS, keys), make(_KEY_HEADS, keys)

    def ours(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return torch.ops.kernelpack.mha(query, key, value, enable_gqa=True)

    def stock(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(query, key, value, enable_gqa=True)

    def copy(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        value.copy_(key)

    return Prepared(inputs, {OURS: ours, "stock torch": stock, _COPY: copy})


if __name__ == "__main__":
    main("benchmarks.decode")
