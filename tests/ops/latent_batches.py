"""Batches for mla_decode: those of paged_attention with one key head, whose values are part of its keys. `python -m tests.ops.latent_batches` holds
the op to its reference in all of CASES and says what failed."""

from __future__ import annotations

import sys
from typing import Any

import torch

from tests.ops.paged_batches import DTYPES, Batch, compare

Call = tuple[tuple[torch.Tensor, ...], dict[str, Any]]
NAMES = ("query", "cache", "block_table", "query_starts", "key_lengths")


def latent(name: str, lengths: tuple[tuple[int, int], ...], heads: int = 16, block: int = 16, **options: Any) -> Batch:
    return Batch(name, lengths, heads=heads, kv_heads=1, size=576, value_size=512, block=block, options=options)


SOME = ((1, 300), (1, 17), (0, 5), (1, 1), (20, 90), (3, 90), (0, 0))
"""As MIXED of paged_batches, but fewer keys."""
CASES = (
    latent("one key", ((1, 1),)),
    latent("decode", ((1, 700), (1, 33), (1, 512), (1, 513), (1, 2100))),
    latent("decode, 128 heads", ((1, 300), (1, 33)), heads=128),
    latent("decode, one head", ((1, 300), (1, 33)), heads=1),
    latent("drafts", ((3, 300), (2, 17), (4, 600), (1, 40))),
    latent("mixed", SOME, heads=5),
    latent("mixed, all keys", SOME, heads=5, causal=False),
    latent("mixed, scale below 0", SOME, heads=5, scale=-0.05),
    latent("mixed, bounds far above", SOME, heads=5, max_query_length=100, max_key_length=30_000),
    latent("mixed, batch invariant", SOME, heads=5, batch_invariant=True),
    latent("fewer keys than queries", ((5, 3), (70, 20), (1, 0), (33, 0)), heads=3),
    *(latent(f"blocks of {block}", ((1, 300), (9, 400)), block=block) for block in (32, 64, 128, 1024)),
    latent("no sequence", ()),
    latent("no query", ((0, 10), (0, 0))),
    latent("no query, bounds above", ((0, 10), (0, 0)), max_query_length=4),
)


def arguments(batch: Batch, dtype: torch.dtype) -> Call:
    """Returns the op's arguments. Rows of the cache that hold no key are NaN."""
    (query, keys, _, *rest), keywords = batch.arguments(dtype)
    return (query, keys.squeeze(2), *rest), {"scale": 192**-0.5} | keywords


def problem(batch: Batch, dtype: torch.dtype, got: tuple[torch.Tensor, ...], times: float = 2) -> str:
    """Returns what is wrong with a result, or "": as `compare`."""
    (query, cache, *rest), keywords = arguments(batch, dtype)
    keys = cache.unsqueeze(2)
    return compare(batch.name, got, (query, keys, keys[..., :512], *rest), keywords, times)


if __name__ == "__main__":
    import kernelpack

    assert kernelpack.__version__
    tried = [(batch, dtype) for batch in CASES for dtype in DTYPES]
    problems = []
    for batch, dtype in tried:
        args, kwargs = arguments(batch, dtype)
        problems.append(problem(batch, dtype, torch.ops.kernelpack.mla_decode(*args, **kwargs)))
    problems = [one for one in problems if one]
    print(*problems, f"{len(tried)} cases, {len(problems)} inaccurate", sep="\n")
    sys.exit(bool(problems))
