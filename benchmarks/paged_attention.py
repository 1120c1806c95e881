"""Attention to a cache in blocks: torch.ops.kernelpack.paged_attention beside torch's scaled_dot_product_attention on keys that were
gathered before, and on GPUs beside FlashAttention 3 on the same blocks, its schedule made before, if benchmarks/vllm_libraries.py has
got it.

In cases with `copy bandwidth` a copy reads and writes together as many bytes as keys and values have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks import vllm_libraries
from benchmarks.measure import DTYPES, OURS, Case, Prepared
from benchmarks.report import main
from benchmarks.vllm_libraries import FLASH_ATTENTION

_COPY, _STOCK = "copy bandwidth", "stock torch"
_MODELS = {
    "9/3 d64": (9, 3, 64),
    "32/8 d128": (32, 8, 128),
    "32/8 d64": (32, 8, 64),
    "64/8 d128": (64, 8, 128),
    "8/1 d128": (8, 1, 128),
}
"""Query heads, key heads and head size, as SmolLM2-135M, Llama 3 8B, Llama 3.2 1B and Llama 3 70B have them, and the last on one of
eight GPUs that share its heads."""

Lengths = tuple[tuple[int, int], ...]
_CHUNKS: dict[str, Lengths] = {
    f"prefill {queries} after {before}": ((queries, queries + before),) for queries, before in product((128, 512), (0, 1024))
}
_MIXED: Lengths = ((128, 640), *((1, 1024),) * 7)


def cases(device: str, quick: bool) -> Sequence[Case]:
    if quick:
        return list(_cases(device, ["fp32"], {"mixed": ((5, 40), (1, 70))}, [1], [16]))
    if device == "cpu":
        decode = {f"decode {batch} x {keys}": ((1, keys),) * batch for batch, keys in product((1, 8, 32), (128, 1024, 8192))}
        return list(_cases(device, ["fp32", "bf16"], {**decode, **_CHUNKS, "mixed": _MIXED}, [1, 2], [16]))
    decode = {
        f"decode {batch} x {keys}": ((1, keys),) * batch
        for batch, keys in product((1, 16, 64, 256), (1024, 8192, 32768, 131072))
    }
    large: dict[str, Lengths] = {
        "prefill 4 x 2048": ((2048, 2048),) * 4,
        "prefill 512 after 32768": ((512, 33280),),
        "mixed": (*((512, 2048),) * 4, *((1, 4096),) * 60),
    }
    return list(_cases(device, ["bf16"], {**decode, **_CHUNKS, **large}, [1], [16, 128]))


def _cases(
    device: str, dtypes: list[str], batches: dict[str, Lengths], threads: list[int], blocks: list[int]
) -> Iterator[Case]:
    models = list(_MODELS)[: 2 if device == "cpu" else None]
    for dtype, model, (name, lengths), block, count in product(dtypes, models, batches.items(), blocks, threads):
        heads, kv_heads, size = _MODELS[model]
        gigabytes = sum(keys for _, keys in lengths) * 2 * kv_heads * size * DTYPES[dtype].itemsize / 1e9
        if gigabytes > (1 if device == "cpu" else 30):
            continue
        decoding = all(queries == 1 for queries, _ in lengths)
        # a query sees all keys before its chunk, and half of those in it
        operations = sum(4 * heads * size * queries * (keys - queries / 2) for queries, keys in lengths)
        title = f"{dtype} {model} {name}" + (f" {count}t" if device == "cpu" else f" blocks of {block}")
        peers = [_STOCK]
        if device == "cuda":
            peers += [*vllm_libraries.peers("_vllm_fa3_C", FLASH_ATTENTION), *[_COPY] * decoding]
        arguments = {"dtype": dtype, "model": model, "lengths": lengths, "block": block}
        unit, work = ("GB/s", gigabytes) if decoding else ("GFLOP/s", operations / 1e9)
        yield Case(title, unit, work, device, tuple(peers), "paged_attention", count, arguments, graph=device == "cuda")


def prepare(case: Case) -> Prepared:
    (heads, kv_heads, size), lengths = _MODELS[case.arguments["model"]], case.arguments["lengths"]
    block, dtype, device = case.arguments["block"], DTYPES[case.arguments["dtype"]], case.device
    counts = [-(-keys // block) for _, keys in lengths]
    starts = [0]
    for queries, _ in lengths:
        starts.append(starts[-1] + queries)
    bounds = {"max_query_length": max(queries for queries, _ in lengths), "max_key_length": max(keys for _, keys in lengths)}
    alike: dict[tuple[int, int], list[int]] = {}
    for number, pair in enumerate(lengths):
        alike.setdefault(pair, []).append(number)

    def inputs() -> tuple[Any, ...]:
        def make(*shape: int) -> torch.Tensor:
            return torch.randn(shape, device=device, dtype=dtype)

        query, key, value = make(starts[-1], heads, size), *(make(sum(counts), block, kv_heads, size) for _ in range(2))
        order = torch.randperm(sum(counts), device=device).int()
        table = torch.zeros(len(lengths), max(counts), dtype=torch.int32, device=device)
        for number, own in enumerate(order.split(counts)):
            table[number, : counts[number]] = own
        numbers = (torch.tensor(x, dtype=torch.int32, device=device) for x in (starts, [keys for _, keys in lengths]))
        groups = [_gathered(query, key, value, table, starts, own, pair) for pair, own in alike.items()]
        return query, key, value, table, *numbers, groups

    def ours(*args: Any) -> torch.Tensor:
        out: torch.Tensor = torch.ops.kernelpack.paged_attention(*args[:-1], **bounds)[0]
        return out

    def stock(*args: Any) -> list[torch.Tensor]:
        """One call for all sequences of the same lengths."""
        return [
            F.scaled_dot_product_attention(*tensors, mask, is_causal=causal, enable_gqa=True)
            for tensors, mask, causal in args[-1]
        ]

    def flash(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, table: torch.Tensor, *rest: Any) -> torch.Tensor:
        given = {"causal": True, "key_lengths": rest[1], "block_table": table, "schedule": schedule}
        return vllm_libraries.flash_attention(query, key, value, rest[0], *bounds.values(), **given)

    def copy(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any) -> None:
        value.copy_(key)

    made = inputs()
    schedule = None
    if FLASH_ATTENTION in case.peers:
        schedule = vllm_libraries.flash_schedule(made[0], made[1], made[4], made[5], *bounds.values())
    theirs = torch.empty_like(made[0])
    for own, results in zip(alike.values(), stock(*made), strict=True):
        for number, result in zip(own, results, strict=True):
            theirs[starts[number] : starts[number + 1]] = result.transpose(0, 1)
    torch.testing.assert_close(ours(*made), theirs, atol=2e-2, rtol=2e-2)

    def unchecked(call: Callable[..., Any]) -> Callable[..., None]:
        """Results of stock torch are shaped otherwise, and were compared above."""

        def run(*args: Any) -> None:
            call(*args)

        return run

    return Prepared(inputs, {OURS: ours, _STOCK: unchecked(stock), FLASH_ATTENTION: flash, _COPY: copy})


def _gathered(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    table: torch.Tensor,
    starts: list[int],
    numbers: list[int],
    pair: tuple[int, int],
) -> tuple[tuple[torch.Tensor, ...], torch.Tensor | None, bool]:
    """Returns the contiguous queries, keys and values [sequences, heads, length, size] of sequences of the same lengths, the mask that
    scaled_dot_product_attention needs for them, and whether it is causal without one."""
    queries, keys = pair

    def rows(cache: torch.Tensor, number: int) -> torch.Tensor:
        return cache[table[number, : -(-keys // cache.shape[1])].long()].flatten(0, 1)[:keys]

    stacked = (
        torch.stack([query[starts[number] : starts[number + 1]] for number in numbers]),
        *(torch.stack([rows(cache, number) for number in numbers]) for cache in (key, value)),
    )
    mask = None
    if queries not in (1, keys):
        positions = torch.arange(keys - queries, keys, device=query.device)
        mask = torch.arange(keys, device=query.device) <= positions[:, None]
    return tuple(x.transpose(1, 2).contiguous() for x in stacked), mask, queries == keys and queries > 1


if __name__ == "__main__":
    main("benchmarks.paged_attention")
