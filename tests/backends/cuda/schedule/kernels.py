"""Kernels whose loops overlap: products and attention, through pointers and through descriptors."""

from __future__ import annotations

import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def product(a, b, c, n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c = a b of n x n."""
    rows, columns, depth = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :], tl.arange(0, BK)
    total = tl.zeros([BM, BN], tl.float32)
    for k in range(0, n, BK):
        x = tl.load(a + rows * n + (k + depth)[None, :])
        y = tl.load(b + (k + depth)[:, None] * n + columns)
        total = tl.dot(x, y, total)
    tl.store(c + rows * n + columns, total.to(tl.bfloat16))


@kp.jit
def attention(q, k, v, out, n, B: tl.constexpr, D: tl.constexpr):
    """The two products of attention, with something computed between them and on the sum: 128 queries, blocks of B keys."""
    rows, columns, d = tl.arange(0, 128)[:, None], tl.arange(0, B), tl.arange(0, D)
    queries = tl.load(q + rows * D + d[None, :])
    total = tl.zeros([128, D], tl.float32)
    for start in range(0, n, B):
        keys = tl.load(k + (start + columns)[:, None] * D + d[None, :])
        scores = tl.dot(queries, keys.T)
        weights = tl.exp2(scores)
        values = tl.load(v + (start + columns)[:, None] * D + d[None, :])
        total = total * 0.5
        total = tl.dot(weights.to(tl.bfloat16), values, total)
    tl.store(out + rows * D + d[None, :], total.to(tl.bfloat16))


@kp.jit
def block_product(a, b, c, n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ASK: tl.constexpr):
    """c = a b^T of n x n through descriptors; ASK has a warp of its own load."""
    left = tl.make_tensor_descriptor(a, [n, n], [n, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [n, n], [n, 1], [BN, BK])
    result = tl.make_tensor_descriptor(c, [n, n], [n, 1], [BM, BN])
    total = tl.zeros([BM, BN], tl.float32)
    for k in tl.range(0, n, BK, warp_specialize=ASK):
        x = left.load([0, k])
        y = right.load([0, k])
        total = tl.dot(x, y.T, total)
    result.store([0, 0], total.to(tl.bfloat16))


@kp.jit
def block_attention(q, k, v, out, n, B: tl.constexpr, D: tl.constexpr):
    """As `attention`, through descriptors."""
    keys_of = tl.make_tensor_descriptor(k, [n, D], [D, 1], [B, D])
    values_of = tl.make_tensor_descriptor(v, [n, D], [D, 1], [B, D])
    rows, d = tl.arange(0, 128)[:, None], tl.arange(0, D)
    queries = tl.load(q + rows * D + d[None, :])
    total = tl.zeros([128, D], tl.float32)
    for start in range(0, n, B):
        keys = keys_of.load([start, 0])
        scores = tl.dot(queries, keys.T)
        weights = tl.exp2(scores)
        values = values_of.load([start, 0])
        total = total * 0.5
        total = tl.dot(weights.to(tl.bfloat16), values, total)
    tl.store(out + rows * D + d[None, :], total.to(tl.bfloat16))
