"""Calls with batch_invariant=True whose results must have the same bits for a part of the batch as for the whole."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import torch

from tests.ops.layouts import bits
from tests.ops.paged_batches import DTYPES

Slice = tuple[int, int]

ROWS = 700
PARTS: tuple[Slice, ...] = ((0, 1), (5, 6), (3, 7), (1, 9), (8, 24), (16, 48), (0, 64), (64, 129), (5, 205), (8, 648))
PRODUCTS = ((576, 200), (999, 64), (2048, 520), (8, 8), (1000, 1))


def products(dtype: torch.dtype, transposed: bool, device: str) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Yields what a part of the rows gives, and what it gives among all rows."""
    matmul = torch.ops.kernelpack.matmul
    for depth, columns in PRODUCTS:
        a = torch.randn(ROWS, depth, device=device).to(dtype)
        b = torch.randn(depth, columns, device=device).to(dtype)
        b = b.t().contiguous().t() if transposed else b
        bias = torch.randn(columns, device=device).to(dtype)
        together = matmul(a, b, bias, activation=4, batch_invariant=True)
        for begin, end in PARTS:
            name = f"rows {begin} ... {end} of {depth} x {columns}"
            yield name, matmul(a[begin:end], b, bias, activation=4, batch_invariant=True), together[begin:end]
        stacked = a[:690].view(3, 230, depth)
        yield (
            f"matrices that share {depth} x {columns}",
            matmul(stacked, b, bias, activation=4, batch_invariant=True).flatten(0, 1),
            together[:690],
        )
        own = torch.stack((b, b * 2, b - 1))
        own = own.mT.contiguous().mT if transposed else own
        many = matmul(stacked, own, batch_invariant=True)
        yield f"one of three times {depth} x {columns}", matmul(stacked[1:2], own[1:2], batch_invariant=True), many[1:2]
        yield f"one by itself times {depth} x {columns}", matmul(stacked[1], own[1], batch_invariant=True), many[1]


def attentions(dtype: torch.dtype, head_dim: int, device: str) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Yields what one entry of a batch gives, and what it gives in the batch."""
    mha = torch.ops.kernelpack.mha
    for queries, keys, heads, kv_heads in (
        (1, 1, 4, 4),
        (1, 300, 9, 3),
        (1, 2000, 2, 2),
        (4, 1500, 8, 2),
        (40, 40, 3, 3),
        (130, 600, 4, 2),
    ):
        query, key, value = (
            torch.randn(7, count, length, head_dim, device=device).to(dtype)
            for count, length in ((heads, queries), (kv_heads, keys), (kv_heads, keys))
        )
        for causal in (False, True):
            options = {"is_causal": causal, "enable_gqa": heads != kv_heads, "batch_invariant": True}
            together = mha(query, key, value, **options)
            for begin, end in ((0, 1), (2, 5), (6, 7)):
                name = f"{begin} ... {end} of 7, {queries} queries, {keys} keys, {heads} heads of {head_dim}, causal {causal}"
                yield name, mha(query[begin:end], key[begin:end], value[begin:end], **options), together[begin:end]


def main() -> None:
    """Prints what differs on the CPU."""
    import_module("kernelpack")  # which loads the ops
    for dtype in DTYPES:
        found = [pair for transposed in (False, True) for pair in products(dtype, transposed, "cpu")]
        found += [pair for head_dim in (32, 64, 96) for pair in attentions(dtype, head_dim, "cpu")]
        for name, apart, together in found:
            if not torch.equal(bits(apart), bits(together)):
                print(f"{dtype}: {name}")


if __name__ == "__main__":
    main()
