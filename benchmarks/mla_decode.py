"""Multi-head latent attention of decoding rows: torch.ops.kernelpack.mla_decode beside torch's products and softmax on latents that were
gathered before.

On GPUs the cases have two bounds beside them: `copy bandwidth`, a copy that reads and writes together as many bytes as the latents have,
and with many heads `tensor cores`, a product of about square matrices by torch with as many operations, or a few less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import torch

from benchmarks.measure import DTYPES, OURS, Case, Prepared
from benchmarks.report import main

_COPY, _CORES, _STOCK = "copy bandwidth", "tensor cores", "stock torch"
_WIDTH, _LATENT, _SCALE = 576, 512, 192**-0.5


def cases(device: str, quick: bool) -> Sequence[Case]:
    if quick:
        return list(_cases(device, ["fp32"], [16], [(2, 70)], [1]))
    if device == "cpu":
        return list(_cases(device, ["fp32", "bf16"], [16, 128], product((1, 8), (1024, 8192)), [1, 2]))
    return list(_cases(device, ["bf16"], [16, 128], product((1, 16, 64, 128), (1024, 4096, 32768)), [1]))


def _cases(
    device: str,
    dtypes: list[str],
    heads: list[int],
    batches: Iterator[tuple[int, int]] | list[tuple[int, int]],
    threads: list[int],
) -> Iterator[Case]:
    for dtype, count, (sequences, keys), used in product(dtypes, heads, batches, threads):
        gigabytes = sequences * keys * _WIDTH * DTYPES[dtype].itemsize / 1e9
        title = f"{dtype} {count} heads, {sequences} x {keys}" + (f" {used}t" if device == "cpu" else "")
        peers = [_STOCK] + ([_COPY] if count == 16 else [_COPY, _CORES]) * (device == "cuda")
        arguments = {"dtype": dtype, "heads": count, "sequences": sequences, "keys": keys}
        yield Case(title, "GB/s", gigabytes, device, tuple(peers), "mla_decode", used, arguments, graph=device == "cuda")


def prepare(case: Case) -> Prepared:
    heads, sequences, keys = (case.arguments[name] for name in ("heads", "sequences", "keys"))
    dtype, device, block = DTYPES[case.arguments["dtype"]], case.device, 64
    pages = -(-keys // block)
    operations = 2 * sequences * heads * keys * (_WIDTH + _LATENT)
    side = max(128, round((operations / 2) ** (1 / 3) / 128) * 128)

    def inputs() -> tuple[Any, ...]:
        query = torch.randn(sequences, heads, _WIDTH, device=device, dtype=dtype)
        cache = torch.randn(sequences * pages, block, _WIDTH, device=device, dtype=dtype)
        table = torch.randperm(sequences * pages, device=device).int().view(sequences, pages)
        starts = torch.arange(sequences + 1, device=device, dtype=torch.int32)
        lengths = torch.full((sequences,), keys, device=device, dtype=torch.int32)
        gathered = cache[table.long()].flatten(1, 2)[:, :keys].contiguous()
        beside = torch.randn(2, side, max(64, operations // (2 * side * side) // 64 * 64), device=device, dtype=dtype)
        return query, cache, table, starts, lengths, gathered, beside

    def ours(*args: Any) -> torch.Tensor:
        bounds = {"scale": _SCALE, "max_query_length": 1, "max_key_length": keys}
        out: torch.Tensor = torch.ops.kernelpack.mla_decode(*args[:5], **bounds)[0]
        return out

    def products(query: torch.Tensor, *rest: Any) -> torch.Tensor:
        latents = rest[4]
        return torch.softmax(query @ latents.mT * _SCALE, -1) @ latents[..., :_LATENT]

    def stock(*args: Any) -> None:
        products(*args)  # less exact, as scores are rounded

    def copy(query: torch.Tensor, cache: torch.Tensor, *rest: Any) -> None:
        half = cache.shape[0] // 2
        cache[:half].copy_(cache[half : 2 * half])

    def cores(*args: Any) -> None:
        torch.mm(args[6][0], args[6][1].mT)

    made = inputs()
    torch.testing.assert_close(ours(*made), products(*made), atol=4e-2, rtol=4e-2)
    calls: dict[str, Callable[..., Any]] = {OURS: ours, _STOCK: stock, _COPY: copy, _CORES: cores}
    return Prepared(inputs, calls)


if __name__ == "__main__":
    main("benchmarks.mla_decode")
