"""Matrix products: torch.ops.kernelpack.matmul beside torch.matmul."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import torch

from benchmarks.measure import DTYPES, FAST_MKL, OURS, Case, Prepared
from benchmarks.report import main


def cases(device: str, quick: bool) -> Sequence[Case]:
    if quick:
        return list(_cases(device, ["fp32"], [128], [1]))
    if device == "cpu":
        return list(_cases(device, ["fp32", "bf16"], [512, 1024, 2048], [1, 2]))
    return list(_cases(device, ["fp32", "bf16", "fp16"], [1024, 2048, 4096, 8192], [1]))


def _cases(device: str, dtypes: list[str], sizes: list[int], threads: list[int]) -> Iterator[Case]:
    for dtype, size, count in product(dtypes, sizes, threads):
        name = f"{dtype} {size}" + (f" {count}t" if device == "cpu" else "")
        unit, scale = ("GFLOP/s", 1e9) if device == "cpu" else ("TFLOP/s", 1e12)
        peers = ("stock torch", FAST_MKL) if device == "cpu" else ("cublas",)
        yield Case(name, unit, 2 * size**3 / scale, device, peers, "matmul", count, {"size": size, "dtype": dtype})


def prepare(case: Case) -> Prepared:
    size, dtype = case.arguments["size"], DTYPES[case.arguments["dtype"]]

    def inputs() -> tuple[torch.Tensor, ...]:
        return tuple(torch.randn(size, size, device=case.device, dtype=dtype) for _ in range(2))

    stock = torch.matmul
    return Prepared(inputs, {OURS: torch.ops.kernelpack.matmul, "stock torch": stock, FAST_MKL: stock, "cublas": stock})


if __name__ == "__main__":
    main("benchmarks.matmul")
