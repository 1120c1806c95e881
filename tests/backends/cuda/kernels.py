"""Kernels that exercise the CUDA backend: memory, reductions, dots, attention, atomics, control flow."""

from __future__ import annotations

import kernelpack as kp
import kernelpack.language as tl

# ---- memory and arithmetic ----


@kp.jit
def copy_2d(x, out, M, N, sxm, sxn, som, son, BM: tl.constexpr, BN: tl.constexpr, OTHER: tl.constexpr):
    """Copies a matrix of any strides; what is masked off is written as OTHER in a frame of one row and one column."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (m[:, None] < M) & (n[None, :] < N)
    values = tl.load(x + m[:, None] * sxm + n[None, :] * sxn, mask=inside, other=OTHER)
    tl.store(out + m[:, None] * som + n[None, :] * son, values, mask=(m[:, None] < M + 1) & (n[None, :] < N + 1))


@kp.jit
def transpose(x, out, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    tl.store(out + j[:, None] * M + i[None, :], tl.trans(tl.load(x + i[:, None] * N + j[None, :])))


@kp.jit
def rearrange(x, out, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    """Reshapes, permutes, splits and joins: out[c, b, a] = x[a, b, c] with the halves of c exchanged."""
    i = tl.arange(0, A * B * C)
    tile = tl.reshape(tl.load(x + i), [A * B, C // 2, 2])
    even, odd = tl.split(tile)
    tile = tl.reshape(tl.join(odd, even), [A, B, C])
    tl.store(out + i, tl.reshape(tl.permute(tile, (2, 1, 0)), [A * B * C]))


@kp.jit
def integer_mix(x, y, out, n, B: tl.constexpr):
    """Division, remainder, shifts and bits, with run-time ifs and a loop whose length the data gives."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    mask = i < n
    a = tl.load(x + i, mask=mask, other=1)
    b = tl.load(y + i, mask=mask, other=1)
    result = (a // b) * 3 + a % b + ((a & 15) ^ (b | 1)) + (a >> 2) + (~b)
    first = tl.load(x)
    if first > 0:
        for k in range(first % 5 + 1):
            result += k * a
    else:
        result -= b
    tl.store(out + i, tl.where(a > b, result, tl.minimum(result, 1000)), mask=mask)


# ---- reductions and scans ----


@kp.jit
def reduce_2d(x, out, M, N, sm, BM: tl.constexpr, BN: tl.constexpr, AXIS: tl.constexpr, KIND: tl.constexpr):
    m, n = tl.arange(0, BM), tl.arange(0, BN)
    tile = tl.load(x + m[:, None] * sm + n[None, :], mask=(m[:, None] < M) & (n[None, :] < N), other=0)
    if KIND == "sum":
        result = tl.sum(tile, AXIS)
    elif KIND == "max":
        result = tl.max(tile, AXIS)
    else:
        result = tl.min(tile, AXIS)
    if AXIS is None:
        tl.store(out, result)
    elif AXIS == 0:
        tl.store(out + n, result, mask=n < N)
    else:
        tl.store(out + m, result, mask=m < M)


@kp.jit
def scan_2d(x, out, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, tl.cumsum(tl.load(x + at), AXIS, reverse=REVERSE))


@kp.jit
def normalise_rows(x, weight, bias, out, rows, n, stride, BM: tl.constexpr, BN: tl.constexpr):
    """Layer norm, several rows a program."""
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    c = tl.arange(0, BN)
    mask = (r[:, None] < rows) & (c[None, :] < n)
    values = tl.load(x + r[:, None] * stride + c[None, :], mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(values, 1) / n
    centred = tl.where(mask, values - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 1) / n + 1e-5)
    w = tl.load(weight + c, mask=c < n, other=0.0).to(tl.float32)
    b = tl.load(bias + c, mask=c < n, other=0.0).to(tl.float32)
    result = centred * scale[:, None] * w[None, :] + b[None, :]
    tl.store(out + r[:, None] * stride + c[None, :], result.to(out.dtype.element_ty), mask=mask)


@kp.jit
def softmax_row(x, out, stride, n, B: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, B)
    values = tl.load(x + row * stride + c, mask=c < n, other=-float("inf")).to(tl.float32)
    raised = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * stride + c, (raised / tl.sum(raised, 0)).to(out.dtype.element_ty), mask=c < n)


# ---- atomics ----


@kp.jit
def histogram(x, out, n, BINS, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    values = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(out + i % BINS, values, mask=i < n)


@kp.jit
def add_neighbours(x, out, old, n, KEEP: tl.constexpr, B: tl.constexpr):
    """Adds to elements side by side, each twice, and keeps what the first program to come found there."""
    i = tl.arange(0, B)
    found = tl.atomic_add(out + i, tl.load(x + i, mask=i < n), mask=i < n)
    if KEEP:
        tl.store(old + i, found, mask=i < n)


@kp.jit
def tickets(counter, out, seen):
    """Each program takes a number, and writes it where it says; the counts of a tile's old values are kept too."""
    ticket = tl.atomic_add(counter, 1)
    tl.store(out + ticket, ticket)
    i = tl.arange(0, 16)
    tl.atomic_add(seen + 16 + tl.atomic_add(seen + i, 1), 1)


# ---- products ----


@kp.jit
def matmul(
    a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    ap = a + m[:, None] * sam + k[None, :] * sak
    bp = b + k[:, None] * sbk + n[None, :] * sbn
    acc = tl.zeros((BM, BN), ACC)
    for start in range(0, K, BK):
        x = tl.load(ap, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(bp, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision=PRECISION, out_dtype=ACC)
        ap += BK * sak
        bp += BK * sbk
    tl.store(c + m[:, None] * scm + n[None, :] * scn, acc.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@kp.jit
def batched_dot(a, b, c, BATCH: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, NESTED: tl.constexpr = False):
    i, m, n, k = tl.arange(0, BATCH), tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + i[:, None, None] * M * K + m[None, :, None] * K + k[None, None, :])
    y = tl.load(b + i[:, None, None] * K * N + k[None, :, None] * N + n[None, None, :])
    if NESTED:  # batches of batches
        z = tl.dot(x.reshape(2, BATCH // 2, M, K), y.reshape(2, BATCH // 2, K, N), input_precision="ieee").reshape(BATCH, M, N)
    else:
        z = tl.dot(x, y, input_precision="ieee")
    tl.store(c + i[:, None, None] * M * N + m[None, :, None] * N + n[None, None, :], z)


@kp.jit
def attention(
    q, k, v, out, mask, M, N, D, scale, sqh, sqm, skh, skn, soh, som, smm,
    BM: tl.constexpr, BN: tl.constexpr, HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr = "ieee",
):  # fmt: skip
    """Flash attention, forward: one block of queries of one head a program. D is the head size, HEAD_DIM what it is padded to."""
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.arange(0, BN)
    dims = tl.arange(0, HEAD_DIM)
    inner = dims < D
    queries = tl.load(
        q + head * sqh + rows[:, None] * sqm + dims[None, :], mask=(rows[:, None] < M) & inner[None, :], other=0.0
    )
    largest = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, HEAD_DIM), tl.float32)
    end = N
    if CAUSAL:
        end = min(N, (tl.program_id(0) + 1) * BM)
    kp_ = k + head * skh + cols[None, :] * skn + dims[:, None]
    vp = v + head * skh + cols[:, None] * skn + dims[None, :]
    for start in range(0, end, BN):
        here = start + cols
        keys = tl.load(kp_, mask=(here[None, :] < N) & inner[:, None], other=0.0)
        scores = tl.dot(queries, keys, input_precision=PRECISION) * scale
        if mask is not None:
            shown = tl.load(
                mask + rows[:, None] * smm + here[None, :], mask=(rows[:, None] < M) & (here[None, :] < N), other=0.0
            )
            scores += shown.to(tl.float32) * 1.4426950408889634
        visible = here[None, :] < N
        if CAUSAL:
            visible = visible & (here[None, :] <= rows[:, None])
        scores = tl.where(visible, scores, -float("inf"))
        larger = tl.maximum(largest, tl.max(scores, 1))
        base = tl.where(larger == -float("inf"), 0.0, larger)
        shrink = tl.exp2(largest - base)
        weights = tl.exp2(scores - base[:, None])
        total = total * shrink + tl.sum(weights, 1)
        acc = acc * shrink[:, None]
        values = tl.load(vp, mask=(here[:, None] < N) & inner[None, :], other=0.0)
        acc = tl.dot(weights.to(values.dtype), values, acc, input_precision=PRECISION)
        largest = larger
        kp_ += BN * skn
        vp += BN * skn
    acc = tl.where(total[:, None] == 0.0, 0.0, acc / total[:, None])
    written = (rows[:, None] < M) & inner[None, :]
    tl.store(out + head * soh + rows[:, None] * som + dims[None, :], acc.to(out.dtype.element_ty), mask=written)


@kp.jit
def gated_product(a, b, gate, out, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    """Two products that share a, each with a sum of its own."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    left, right = tl.zeros((M, N), tl.float32), tl.zeros((M, N), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + start + k[None, :])
        left = tl.dot(x, tl.load(b + (start + k[:, None]) * N + n[None, :]), left)
        right = tl.dot(x, tl.load(gate + (start + k[:, None]) * N + n[None, :]), right)
    tl.store(out + m[:, None] * N + n[None, :], tl.maximum(left, 0.0) * right)


@kp.jit
def product_of_changing_tile(a, b, out, K, N: tl.constexpr):
    """The loop carries operand b and doubles it: b is written to shared memory while the last product may still read it."""
    i = tl.arange(0, N)
    y = tl.load(b + i[:, None] * N + i[None, :])
    total = tl.zeros((N, N), tl.float32)
    for start in range(0, K, N):
        total = tl.dot(tl.load(a + i[:, None] * K + start + i[None, :]), y, total)
        y = (y * 2.0).to(y.dtype)
    tl.store(out + i[:, None] * N + i[None, :], total)


@kp.jit
def product_of_small_floats(
    a, b, out, K, sbk, sbn, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, LIMIT: tl.constexpr, FLIP: tl.constexpr
):
    """8-bit floats, b in either order; with FLIP a's elements change their signs on the way, by their bits."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + start + k[None, :])
        if FLIP:
            x = (x.to(tl.int8, bitcast=True) ^ -128).to(x.dtype, bitcast=True)
        y = tl.load(b + (start + k[:, None]) * sbk + n[None, :] * sbn)
        total = tl.dot(x, y, total, max_num_imprecise_acc=LIMIT)
    tl.store(out + m[:, None] * N + n[None, :], total)


@kp.jit
def product_of_small_integers(a, b, out, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, A_IS_SMALL: tl.constexpr):
    """One operand has 8 bits in memory and is widened on the way."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + start + k[None, :])
        y = tl.load(b + (start + k[:, None]) * N + n[None, :])
        if A_IS_SMALL:
            total = tl.dot(x.to(y.dtype), y, total)
        else:
            total = tl.dot(x, y.to(x.dtype), total)
    tl.store(out + m[:, None] * N + n[None, :], total)
