"""Batches for paged_attention: sequences of stated lengths in blocks of a cache in random order. `python -m tests.ops.paged_batches` holds the
op to its reference in all of CASES and says what failed."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.ops.grid import module_of

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
NOWHERE = -(2**31)
"""What a column of block_table holds that no key of the sequence needs."""


@dataclass(frozen=True)
class Batch:
    """Sequences of (queries, keys), and how the op is called. `window`, `softcap` and so on are in `options`; `sinks` and `scales` are made.
    `narrow`: the cache is float8_e4m3fn, for queries in bfloat16."""

    name: str
    lengths: tuple[tuple[int, int], ...]
    heads: int = 6
    kv_heads: int = 2
    size: int = 64
    value_size: int | None = None
    block: int = 16
    sinks: bool = False
    scales: int = 0
    narrow: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """The dtypes of queries that the op is built for."""
        return (torch.bfloat16,) if self.narrow else DTYPES

    def arguments(self, dtype: torch.dtype) -> tuple[tuple[torch.Tensor, ...], dict[str, Any]]:
        """Returns the op's arguments. Rows of the cache that hold no key are NaN."""
        torch.manual_seed(zlib.crc32(f"{self.name} {dtype}".encode()))
        counts = [-(-keys // self.block) for _, keys in self.lengths]
        blocks = sum(counts) + 2
        key_cache = torch.full((blocks, self.block, self.kv_heads, self.size), float("nan"), dtype=dtype)
        value_cache = torch.full((*key_cache.shape[:3], self.value_size or self.size), float("nan"), dtype=dtype)
        table = torch.full((len(self.lengths), max(counts, default=0)), NOWHERE, dtype=torch.int32)
        order, taken = torch.randperm(blocks), 0
        for number, ((_, keys), count) in enumerate(zip(self.lengths, counts, strict=True)):
            own = order[taken : taken + count]
            table[number, :count] = own
            taken += count
            for cache in (key_cache, value_cache):
                rows = cache[own].flatten(0, 1)
                rows[:keys] = torch.randn(rows[:keys].shape).to(dtype)
                cache[own] = rows.view(count, *cache.shape[1:])
        starts = torch.tensor([0, *(queries for queries, _ in self.lengths)]).cumsum(0).int()
        query = torch.randn(int(starts[-1]), self.heads, self.size).to(dtype)
        keywords: dict[str, Any] = {
            "max_query_length": max((queries for queries, _ in self.lengths), default=0),
            "max_key_length": max((keys for _, keys in self.lengths), default=0),
        }
        if self.sinks:
            keywords["sinks"] = torch.randn(self.heads)
        if self.scales:
            keywords |= {"key_scale": torch.rand(self.scales) + 0.5, "value_scale": torch.rand(self.scales) + 0.5}
        lengths = torch.tensor([keys for _, keys in self.lengths], dtype=torch.int32)
        if self.narrow:
            key_cache, value_cache = (cache.to(torch.float8_e4m3fn) for cache in (key_cache, value_cache))
        return (query, key_cache, value_cache, table, starts, lengths), keywords | self.options


MIXED = ((1, 300), (1, 17), (37, 37), (0, 5), (1, 1), (70, 650), (3, 90), (0, 0), (2, 2), (1, 1025))
"""Decoding rows, prefill chunks with keys before them and without, some queries of a draft, and sequences of nothing."""

CASES = (
    Batch("one key", ((1, 1),)),
    Batch("decode", ((1, 700), (1, 33), (1, 512), (1, 513), (1, 2100))),
    Batch("decode, one head for each", ((1, 700), (1, 33)), heads=5, kv_heads=5),
    Batch("decode, eight heads share one", ((1, 700), (1, 33), (1, 1600)), heads=8, kv_heads=1, size=128),
    Batch("decode, 71 heads share one", ((1, 90), (1, 33)), heads=71, kv_heads=1),
    Batch("drafts", ((3, 300), (2, 17), (4, 600), (1, 40))),
    Batch("prefill", ((128, 128), (5, 5), (200, 200))),
    Batch("chunks", ((64, 600), (100, 130))),
    Batch("mixed", MIXED),
    Batch("mixed, head size 128", MIXED, heads=8, size=128, block=32),
    Batch("mixed, window", MIXED, options={"window": 48}),
    Batch("mixed, window of one key", MIXED, options={"window": 1}),
    Batch("mixed, all keys", MIXED, options={"causal": False}),
    Batch("mixed, softcap", MIXED, options={"softcap": 3.0}),
    Batch("mixed, sinks", MIXED, sinks=True),
    Batch("mixed, all at once", MIXED, sinks=True, scales=2, options={"softcap": 4.0, "window": 200, "scale": 0.3}),
    Batch("mixed, one scale", MIXED, scales=1),
    Batch("mixed, scale below 0", MIXED, options={"scale": -0.2}),
    Batch("mixed, bounds far above", MIXED, options={"max_query_length": 5000, "max_key_length": 100_000}),
    Batch("mixed, batch invariant", MIXED, options={"batch_invariant": True}),
    Batch("fewer keys than queries", ((5, 3), (70, 20), (1, 0), (33, 0)), sinks=True),
    Batch("fewer keys than queries, no sinks", ((5, 3), (70, 20), (1, 0), (33, 0))),
    *(Batch(f"blocks of {block}", ((1, 300), (65, 400)), block=block) for block in (64, 128, 256, 1024)),
    *(Batch(f"head size {size}", ((1, 300), (65, 130)), size=size) for size in (1, 16, 40, 72, 80, 96, 100)),
    *(Batch(f"head size {size}", MIXED, size=size) for size in (192, 256)),
    Batch("value size differs", ((1, 300), (65, 130)), size=96, value_size=48),
    Batch("value size differs, large", MIXED, size=192, value_size=128),
    *(
        Batch(f"8 bits, head size {size}", MIXED, size=size, scales=scales, narrow=True)
        for size, scales in ((64, 2), (128, 1), (80, 0))
    ),
    Batch("no sequence", ()),
    Batch("no query", ((0, 10), (0, 0))),
)


def compare(
    name: str, got: tuple[torch.Tensor, ...], arguments: tuple[torch.Tensor, ...], keywords: dict[str, Any], times: float = 2
) -> str:
    """Returns what is wrong with a result, or "". Its largest error may be twice that of the reference in the same dtype, or so many times, and
    half a unit in the last place of the largest element (two in float32); lse is in float32."""
    reference, dtype = module_of("paged_attention").reference, arguments[0].dtype
    own = reference(*arguments, **keywords)
    exact = reference(*(x.double() if x.is_floating_point() else x for x in arguments), **keywords)
    problems = []
    for which, ours, torchs, right, kind in zip(("out", "lse"), got, own, exact, (dtype, torch.float32), strict=True):
        if ours.shape != right.shape or ours.dtype != kind:
            return f"{name}: {which} is {tuple(ours.shape)} {ours.dtype}, expected {tuple(right.shape)} {kind}"
        if not right.numel():
            continue
        same = (ours == right) | (ours.isnan() & right.isnan())
        error = float(torch.where(same, 0.0, (ours.double() - right).abs()).nan_to_num(nan=float("inf")).max())
        finite = right[right.isfinite()]
        unit = torch.finfo(kind).eps * (float(finite.abs().max()) if finite.numel() else 0.0)
        theirs = (torchs.double() - right).abs().nan_to_num(nan=0.0, posinf=0.0)
        allowed = times * float(theirs.max()) + unit * (2 if kind == torch.float32 else 0.5)
        if not error <= allowed:
            problems.append(f"{which}: error {error:.3g}, torch's {float(theirs.max()):.3g}, allowed {allowed:.3g}")
    return f"{name} {dtype}: {', '.join(problems)}" if problems else ""


def failures(run: Callable[..., Any], chosen: Sequence[Batch] = CASES) -> list[str]:
    """Runs batches in every dtype; returns what is wrong."""
    found = []
    for batch in chosen:
        for dtype in batch.dtypes:
            args, kwargs = batch.arguments(dtype)
            found.append(compare(batch.name, run(*args, **kwargs), args, kwargs))
    return [problem for problem in found if problem]


if __name__ == "__main__":
    import kernelpack

    assert kernelpack.__version__
    problems = failures(torch.ops.kernelpack.paged_attention)
    print(*problems, f"{sum(len(batch.dtypes) for batch in CASES)} cases, {len(problems)} inaccurate", sep="\n")
    sys.exit(bool(problems))
