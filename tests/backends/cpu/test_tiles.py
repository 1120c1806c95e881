"""Loops, branches, layouts and memory hazards: kernels that make the planner work agree with the interpreter."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.compiler.stages import compile_ttir, optimise_ttir
from kernelpack.options import Options
from kernelpack.target import Target
from tests.backends.cpu.agreement import check, ttir_of


@kp.jit
def transpose(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tile = tl.load(x + rows[:, None] * N + cols[None, :], mask=mask)
    tl.store(out + cols[:, None] * M + rows[None, :], tl.trans(tile) * 2, mask=tl.trans(mask))


@kp.jit
def swap_in_a_loop(x, y, out, steps, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    b = tl.load(y + i)
    for _ in range(steps):
        a, b = b, a + b
    tl.store(out + i, a)
    tl.store(out + BLOCK + i, b)


@kp.jit
def old_value_used_late(x, out, steps, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(steps):
        following = a * 0.5 + tl.sum(a) * 0.25
        total += tl.exp(-tl.abs(following - tl.max(following))) * a
        a = following
    tl.store(out + i, total + a)


@kp.jit
def branches(x, out, flag, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    b = tl.sum(a)
    if flag > 1:
        a = a * 2
        b += 1
    elif flag == 1:
        a = tl.where(i < 3, a, b)
    else:
        b = b * 3
    tl.store(out + i, a + b)


@kp.jit
def nested_loops(x, out, n, m, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for j in range(n):
        row = tl.load(x + j * BLOCK + i)
        for k in range(m):
            total = total * 0.5 + row * (k + 1)
        if j % 2 == 1:
            total -= 1
    tl.store(out + i, total)


@kp.jit
def rotate_in_place(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    low = tl.load(x + i)
    high = tl.load(x + BLOCK + i)
    tl.store(x + i, low - high)
    tl.store(x + BLOCK + i, low + high)


@kp.jit
def load_before_store(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    before = tl.load(x + i)
    tl.store(x + i, before + 1)
    after = tl.load(x + i)
    tl.store(out + i, before * 10 + after + tl.load(y + i))


@kp.jit
def gather_scatter(x, index, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    where = tl.load(index + i)
    tl.store(out + where, tl.load(x + where * 2, mask=where % 3 != 0, other=-1.0))


@kp.jit
def reshape_and_join(x, out, A: tl.constexpr, B: tl.constexpr):
    tile = tl.load(x + tl.arange(0, A)[:, None] * B + tl.arange(0, B)[None, :])
    other = tl.reshape(tile * 2, (B, A))
    tl.store(out + tl.arange(0, B)[:, None] * A + tl.arange(0, A)[None, :], other)


@kp.jit
def join(x, y, out, woven, pair, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i[:, None] * 2 + tl.arange(0, 2)[None, :], tl.join(a, b))
    tl.store(woven + tl.arange(0, 2 * N), tl.interleave(a, b))
    tl.store(pair + tl.arange(0, 2), tl.join(tl.load(x), tl.load(y)))


@kp.jit(noinline=True)
def plus_and_minus(a, b):
    return a + b, a - b


@kp.jit
def calls(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = plus_and_minus(tl.load(x + i), tl.load(y + i))
    tl.store(x + i, a)
    tl.store(y + i, b)


@kp.jit
def count(x, counts, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    value = tl.load(x + i, mask=mask, other=0)
    tl.atomic_add(counts + value, 1, mask=mask)


@kp.jit
def add_up(x, counts, before, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    old = tl.atomic_add(counts + (i & 3), tl.load(x + i, mask=i < n, other=0), mask=i < n)
    tl.store(before + i, old, mask=i < n)


@kp.jit
def early_return(x, out, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    if program * BLOCK >= n:
        return
    i = program * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n, other=0.0) + 1, mask=i < n)


@kp.jit
def layer_norm(x, w, b, out, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * N + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(total) / N
    square = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * N + cols, mask=cols < N, other=0.0).to(tl.float32)
        value = tl.where(cols < N, value - mean, 0.0)
        square += value * value
    inverse = 1 / tl.sqrt(tl.sum(square) / N + eps)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        kept = cols < N
        value = (tl.load(x + row * N + cols, mask=kept, other=0.0).to(tl.float32) - mean) * inverse
        tl.store(out + row * N + cols, value * tl.load(w + cols, mask=kept) + tl.load(b + cols, mask=kept), mask=kept)


def test_transpose() -> None:
    for m, n, dtype in [(70, 50, torch.float32), (33, 16, torch.bfloat16), (8, 100, torch.int8), (5, 5, torch.float64)]:
        x = torch.randint(-40, 40, (m, n)).to(dtype)
        check(transpose, (-(-m // 32), -(-n // 16)), x, torch.zeros(n, m, dtype=dtype), m, n, BM=32, BN=16)


def test_carried_tiles_that_change_places() -> None:
    for steps in (0, 1, 5):
        x, y = torch.randint(-9, 9, (64,)).float(), torch.randint(-9, 9, (64,)).float()
        check(swap_in_a_loop, (1,), x, y, torch.zeros(128), steps, BLOCK=64)


def test_a_carried_tile_is_not_overwritten_before_its_last_use() -> None:
    # sums of 128 numbers in another order, amplified by exp
    check(old_value_used_late, (1,), torch.randn(128), torch.zeros(128), 3, BLOCK=128, rtol=1e-4, atol=1e-4)


def test_branches_give_tiles_and_scalars() -> None:
    for flag in (0, 1, 2):
        check(branches, (1,), torch.arange(32.0), torch.zeros(32), flag, BLOCK=32)


def test_nested_loops() -> None:
    check(nested_loops, (1,), torch.randn(4, 64), torch.zeros(64), 4, 3, BLOCK=64, rtol=1e-6, atol=1e-6)


def test_loads_stay_before_the_stores_that_follow_them() -> None:
    check(rotate_in_place, (1,), torch.randn(2048), BLOCK=1024)
    check(load_before_store, (1,), torch.arange(256.0), torch.randn(256), torch.zeros(256), BLOCK=256)


def test_gather_and_scatter() -> None:
    index = torch.randperm(128).to(torch.int32)
    check(gather_scatter, (1,), torch.randn(256), index, torch.zeros(128), BLOCK=128)


def test_reshape() -> None:
    for a, b in [(16, 32), (4, 64), (64, 2)]:
        check(reshape_and_join, (1,), torch.randn(a, b), torch.zeros(b, a), A=a, B=b)


@pytest.mark.parametrize("size", [2, 16, 64])
def test_joined_tiles_lie_element_by_element(size: int) -> None:
    x, y = torch.arange(size), torch.arange(size) - 100
    check(join, (1,), x, y, *(torch.zeros(extent, dtype=torch.int64) for extent in (2 * size, 2 * size, 2)), N=size)


def test_functions_marked_noinline_are_inlined_for_want_of_calls() -> None:
    check(calls, (1,), torch.arange(16), torch.arange(16) * 5, N=16)


def test_atomics_under_a_mask() -> None:
    check(count, (3,), torch.randint(0, 7, (150,)).to(torch.int32), torch.zeros(8, dtype=torch.int32), 150, BLOCK=64)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_atomics_on_floats_of_16_bits(dtype: torch.dtype) -> None:
    x = torch.randint(-3, 4, (100,)).to(dtype) / 8  # sums are exact
    check(add_up, (1,), x, torch.tensor([0, -2, 1, 0.5], dtype=dtype), torch.zeros(100, dtype=dtype), 100, BLOCK=128)
    check(add_up, (2,), x.clone(), torch.tensor([0, -2, 1, 0.5], dtype=dtype), torch.zeros(100, dtype=dtype), 100, BLOCK=64)


def test_early_return() -> None:
    check(early_return, (4,), torch.randn(100), torch.zeros(100), 100, BLOCK=64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_layer_norm_in_blocks(dtype: torch.dtype) -> None:
    for n in (64, 200, 37):
        x, w, b = torch.randn(5, n).to(dtype), torch.randn(n).to(dtype), torch.randn(n).to(dtype)
        tolerance = 1e-5 if dtype == torch.float32 else 1e-2
        check(layer_norm, (5,), x, w, b, torch.zeros_like(x), n, 1e-5, BLOCK=64, rtol=tolerance, atol=tolerance)


@kp.jit
def narrow_places(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + 128 - (i + 64).to(tl.int8)))


def test_places_of_eight_bits_wrap() -> None:
    x = torch.arange(257)
    check(narrow_places, (1,), x, torch.zeros(128, dtype=torch.int64), N=128)


@kp.jit
def hashes(out, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + i, (i * 1103515245 + 12345).to(tl.int64))
    tl.store(out + 2 * N + i, ((i << 3) * 2**27 > i).to(tl.int64))


def test_hashes_of_places_wrap() -> None:
    check(hashes, (2,), torch.zeros(1024, dtype=torch.int64), N=256)


@kp.jit
def products_by_numbers(out, factor, shift, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + i, (i * factor).to(tl.int64))
    tl.store(out + 2 * N + i, ((i + shift) * factor + shift).to(tl.int64))
    offsets = i
    for _ in range(3):
        offsets = offsets * factor + shift
    tl.store(out + 4 * N + i, offsets.to(tl.int64))


def test_places_times_numbers_wrap_where_a_kernel_works_with_them() -> None:
    check(products_by_numbers, (2,), torch.zeros(1536, dtype=torch.int64), 2**29, 2**31 - 5, N=256)


@kp.jit
def polynomial(x, out, TERMS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    total = value
    for term in tl.static_range(TERMS):
        total = tl.fma(total, value, 0.5 + term)
    tl.store(out + i, total)


@pytest.mark.parametrize(("terms", "vectors"), [(8, 4), (16, 2), (64, 1)])
def test_constants_and_long_formulas_take_fewer_vectors_an_iteration(terms: int, vectors: int) -> None:
    arguments = (torch.rand(1024), torch.zeros(1024))
    check(polynomial, (1,), *arguments, TERMS=terms, BLOCK=1024)
    module = optimise_ttir(ttir_of(polynomial, arguments, {"TERMS": terms, "BLOCK": 1024}))
    llir = str(compile_ttir(module, Target.parse("cpu:x86-64-v4"), Options()).stages["llir"])
    assert llir.count("store <16 x float>") == vectors
