"""Kernels of operations on whole tiles: sorting, searching, reductions and scans of several tiles, locks, PTX."""

from __future__ import annotations

import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def order(x, i, out, places, M: tl.constexpr, N: tl.constexpr):
    """Rows sorted downwards, what i names of them, and where the largest and the smallest were."""
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    rows = tl.load(x + at)
    ordered = tl.sort(rows, descending=True)
    tl.store(out + at, tl.gather(ordered, tl.load(i + at), 1))
    tl.store(places + tl.arange(0, M), tl.argmax(rows, 1))
    tl.store(places + M + tl.arange(0, M), tl.argmin(rows, 1))


@kp.jit
def seconds(x, out, M: tl.constexpr, N: tl.constexpr):
    """out[j, i] is the second element of pair i, j after x[0]: different threads load the elements of a pair, and nobody uses the first."""
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, 2)
    _, second = tl.split(tl.load(x + (i[:, None, None] * N + j[:, None]) * 2 + k + 1))
    tl.store(out + i[:, None] + j * M, second)


@kp.jit
def _later(a, i, b, j):
    return tl.maximum(a, b), tl.maximum(i, j)


@kp.jit
def repeated_rows(x, out, rows, M: tl.constexpr, N: tl.constexpr):
    """Reduces a row that is broadcast to M rows, together with the rows' numbers."""
    i, j = tl.arange(0, M), tl.arange(0, N)
    tile = tl.broadcast_to(tl.load(x + j)[None, :], [M, N])
    largest, row = tl.reduce((tile, tl.broadcast_to(i[:, None], [M, N])), 0, _later)
    tl.store(out + j, largest)
    tl.store(rows + j, row)


@kp.jit
def _welford(mean1, m2_1, weight1, mean2, m2_2, weight2):
    delta = mean2 - mean1
    weight = weight1 + weight2
    share = weight2 / weight
    return mean1 + delta * share, m2_1 + m2_2 + delta * delta * weight1 * share, weight


@kp.jit
def moments(x, out, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    """Mean and variance along an axis by Welford's formulas: a reduction of three tiles."""
    values = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    mean, m2, weight = tl.reduce((values, tl.zeros_like(values), tl.full(values.shape, 1.0, tl.float32)), AXIS, _welford)
    i = tl.arange(0, M if AXIS == 1 else N)
    tl.store(out + i, mean)
    tl.store(out + (M if AXIS == 1 else N) + i, m2 / weight)


@kp.jit
def _recurrence(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@kp.jit
def recurrence(a, b, out, M: tl.constexpr, N: tl.constexpr, REVERSE: tl.constexpr):
    """y[n] = a[n] y[n - 1] + b[n] along rows: a scan of two tiles whose order matters."""
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    _, y = tl.associative_scan((tl.load(a + at), tl.load(b + at)), 1, _recurrence, reverse=REVERSE)
    tl.store(out + at, y)


@kp.jit
def locked(lock, total, x, N: tl.constexpr):
    """Programs add a row each to a sum that a lock protects."""
    i = tl.arange(0, N)
    row = tl.load(x + tl.program_id(0) * N + i)
    while tl.atomic_cas(lock, 0, 1, sem="acquire") == 1:
        pass
    tl.store(total + i, tl.load(total + i, volatile=True) + row)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0, sem="release")


@kp.jit
def updates(x, floats, ints, N: tl.constexpr):
    """Every atomic update of a tile, several elements on one address."""
    i = tl.arange(0, N)
    value = tl.load(x + i)
    tl.atomic_max(floats + i % 4, value)
    tl.atomic_min(floats + 4 + i % 4, value, mask=i % 3 == 0)
    whole = (value * 100).to(tl.int32)
    tl.atomic_max(ints + i % 4, whole)
    tl.atomic_and(ints + 4 + i % 4, whole, sem="relaxed")
    tl.atomic_or(ints + 8 + i % 4, whole, scope="cta")
    tl.atomic_xor(ints + 12 + i % 4, whole, scope="sys")


@kp.jit
def assembly(x, y, low, high, N: tl.constexpr):
    """Sum and difference of pairs of 16-bit integers in one word, by PTX."""
    i = tl.arange(0, N)
    both, either = tl.inline_asm_elementwise(
        "and.b32 $0, $2, $3;\nor.b32 $1, $2, $3;", "=r,=r,r,r", [tl.load(x + i), tl.load(y + i)], (tl.int16, tl.int16), True, 2
    )
    tl.store(low + i, both)
    tl.store(high + i, either)
