"""Loops, branches, layouts and memory hazards: kernels that make the planner work agree with the interpreter."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.plan.buffers import OperandBuffer
from kernelpack.backends.cpu.stages import CPU_TTIR, ttir_to_tiles_stage
from kernelpack.compiler.stages import compile_ttir, optimise_ttir
from kernelpack.context import Context
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
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TRANSPOSED: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left = a + rows[:, None] * K + k[None, :]
    right = b + (cols[None, :] * K + k[:, None] if TRANSPOSED else k[:, None] * N + cols[None, :])
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        kept = start + k < K
        x = tl.load(left, mask=(rows[:, None] < M) & kept[None, :], other=0.0)
        y = tl.load(right, mask=(cols[None, :] < N) & kept[:, None], other=0.0)
        total = tl.dot(x, y, total)
        left += BK
        right += BK if TRANSPOSED else BK * N
    tl.store(c + rows[:, None] * N + cols[None, :], total, mask=(rows[:, None] < M) & (cols[None, :] < N))


@kp.jit
def product(a, b, c, a_m, a_k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, CLEAR: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N), tl.arange(0, K)
    left = a + m * a_m + k[None, :] * a_k
    x = tl.load(left)
    y = tl.load(b + k[:, None] * N + n[None, :])
    if CLEAR:
        tl.store(left, tl.zeros((M, K), tl.float32))
    tl.store(c + m * N + n[None, :], tl.dot(x, y, input_precision="ieee"))


@kp.jit
def product_with_columns(a, b, c, stride, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m + k[None, :] * stride)
    y = tl.load(b + k[:, None] * N + n[None, :])
    tl.store(c + m * N + n[None, :], tl.dot(x, y, input_precision="ieee"))


@kp.jit
def product_in_two_types(a, b, c, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    z = tl.load(c + k[:, None] * N + n[None, :])
    total = tl.dot(x.to(y.dtype), y)
    tl.store(out + m * N + n[None, :], tl.dot(x.to(z.dtype), z, total))


@kp.jit
def batched_product(a, b, c, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, m, n, k = tl.arange(0, B)[:, None, None], tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + (i * M + m[None, :, None]) * K + k[None, None, :])
    y = tl.load(b + (i * K + k[None, :, None]) * N + n[None, None, :])
    tl.store(c + (i * M + m[None, :, None]) * N + n[None, None, :], tl.dot(x, y, input_precision="ieee"))


@kp.jit
def attention(q, k, v, mask, out, M, N, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, MODE: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    queries = tl.load(q + rows[:, None] * D + d[None, :], mask=rows[:, None] < M, other=0.0)
    top = tl.full((BM,), -float("inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for start in range(0, N, BN):
        cols = start + tl.arange(0, BN)
        keys = tl.load(k + cols[:, None] * D + d[None, :], mask=cols[:, None] < N, other=0.0)
        scores = tl.dot(queries, tl.trans(keys)) * scale
        scores = tl.where(cols[None, :] < N, scores, -float("inf"))
        if MODE == "causal":
            scores = tl.where(rows[:, None] >= cols[None, :], scores, -float("inf"))
        elif MODE == "bias":
            scores += tl.load(
                mask + rows[:, None] * N + cols[None, :], mask=(rows[:, None] < M) & (cols[None, :] < N), other=0.0
            )
        above = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp(scores - above[:, None])
        shrink = tl.exp(top - above)
        weight = weight * shrink + tl.sum(p, 1)
        values = tl.load(v + cols[:, None] * D + d[None, :], mask=cols[:, None] < N, other=0.0)
        total = tl.dot(p.to(values.dtype), values, total * shrink[:, None])
        top = above
    tl.store(out + rows[:, None] * D + d[None, :], total / weight[:, None], mask=rows[:, None] < M)


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
def loaded_or_summed(x, y, out, n, S: tl.constexpr):
    """One branch yields a tile whose columns are contiguous, the other one whose rows are."""
    i = tl.arange(0, S)
    if n > 1:
        tile = tl.load(x + i[:, None] + i[None, :] * S)
    else:
        tile = tl.sum(tl.load(y + i[:, None, None] * S * S + i[None, :, None] * S + i[None, None, :]), 0)
    tl.store(out + i[:, None] * S + i[None, :], tile)


@kp.jit
def one_product_or_another(x, y, out, n, S: tl.constexpr):
    """The other product's rows are reduced, so that rows run along its lanes."""
    i = tl.arange(0, S)
    at = i[:, None] * S + i[None, :]
    a, b = tl.load(x + at), tl.load(y + at)
    if n > 1:
        tile = tl.dot(a, b, input_precision="ieee")
    else:
        tile = tl.dot(b, a, input_precision="ieee")
        tl.store(out + S * S + i, tl.max(tile, 1))
    tl.store(out + at, tile)


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


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_matmul_with_pointers_that_advance(dtype: torch.dtype, transposed: bool) -> None:
    for m, n, k in [(64, 64, 64), (37, 50, 70), (16, 130, 33)]:
        a, b = torch.randn(m, k).to(dtype), (torch.randn(n, k) if transposed else torch.randn(k, n)).to(dtype)
        grid = (-(-m // 32), -(-n // 64))
        check(matmul, grid, a, b, torch.zeros(m, n), m, n, k, BM=32, BN=64, BK=32, TRANSPOSED=transposed, rtol=1e-5, atol=1e-4)


def test_operands_read_where_they_lie() -> None:
    a, b = torch.randn(64, 48).T, torch.randn(64, 32)
    close = {"rtol": 1e-5, "atol": 1e-5}
    for stride, other in ((1, 64), (64, 1)):  # neither axis, or one, is known to be contiguous
        check(product, (1,), torch.randn(4096), b, torch.zeros(16, 32), stride, other, M=16, N=32, K=64, CLEAR=False, **close)
    check(product_with_columns, (1,), a, b[:48], torch.zeros(64, 32), 64, M=64, N=32, K=16, **close)
    for batches in (1, 4):
        x, y = torch.randn(batches, 16, 32), torch.randn(batches, 32, 64)
        check(batched_product, (1,), x, y, torch.zeros(batches, 16, 64), B=batches, M=16, N=64, K=32, **close)


@pytest.mark.parametrize("rows", [8, 16, 64, 128])
def test_rows_that_do_not_fill_whole_blocks(rows: int) -> None:
    """With AVX-512: blocks of 4; of 6 with 4 left over; with a shorter last group of blocks; with 2 rows left over."""
    a, b = torch.randn(rows, 32), torch.randn(32, 128)
    sizes = {"M": rows, "N": 128, "K": 32, "CLEAR": False}
    check(product, (1,), a, b, torch.zeros(rows, 128), 32, 1, **sizes, rtol=1e-5, atol=1e-5)


def test_operands_are_packed_before_they_are_overwritten() -> None:
    a, b = torch.randn(16, 64), torch.randn(64, 32)
    check(product, (1,), a, b, torch.zeros(16, 32), 64, 1, M=16, N=32, K=64, CLEAR=True, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtypes", [(torch.bfloat16, torch.float16), (torch.float16, torch.bfloat16)], ids=str)
def test_operands_in_pairs_and_one_by_one_are_packed_by_the_same_loops(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    """With the bf16 instruction, bf16 is packed in pairs along k; fp16 becomes float32, one by one."""
    sizes = {"M": 16, "N": 64, "K": 32}
    x, y, z = torch.randn(16, 32), torch.randn(32, 64).to(dtypes[0]), torch.randn(32, 64).to(dtypes[1])
    arguments = (x, y, z, torch.zeros(16, 64))
    module = optimise_ttir(ttir_of(product_in_two_types, arguments, sizes))
    compile_ttir(module, Target.parse("cpu:x86-64-v4+avx512bf16"), Options())  # also where it cannot run
    check(product_in_two_types, (1,), *arguments, **sizes, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 4, 32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_few_rows_have_k_in_the_lanes(dtype: torch.dtype, rows: int) -> None:
    """Whole tiles and tiles that end early, in rows alone or in columns and k."""
    for m, n, k in [(rows + 1, 64, 512), (rows, 50, 300)]:
        a, b = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)
        blocks = {"BM": rows, "BN": 32, "BK": 256, "TRANSPOSED": True}
        check(matmul, (-(-m // rows), -(-n // 32)), a, b, torch.zeros(m, n), m, n, k, **blocks, rtol=1e-5, atol=1e-4)


def test_only_masked_or_converted_operands_are_packed() -> None:
    def buffers(dtype: torch.dtype, **few_rows: int) -> list[str]:
        a, b = torch.zeros(64, 64, dtype=dtype), torch.zeros(64, 64, dtype=dtype)
        constexprs = {"BM": 32, "BN": 64, "BK": 32, "TRANSPOSED": False, **few_rows}
        module = optimise_ttir(ttir_of(matmul, (a, b, torch.zeros(64, 64), 64, 64, 64), constexprs))
        lowered = Context(Target.parse("cpu:x86-64-v3"), Options(), "matmul")
        program = ttir_to_tiles_stage(CPU_TTIR(module, lowered), lowered)
        return sorted(buffer.name for buffer in program.buffers if isinstance(buffer, OperandBuffer))

    assert buffers(torch.float32) == ["x", "y", "y.2"]  # x of the unmasked loop is read where it lies
    assert buffers(torch.bfloat16) == ["x", "x.2", "y", "y.2"]
    for dtype in (torch.float32, torch.bfloat16):  # few rows: b of the unmasked loop is read where it lies
        assert buffers(dtype, BM=4, BK=256, TRANSPOSED=True) == ["x", "x.2", "y"]


@pytest.mark.parametrize("flag", [1, 2])
@pytest.mark.parametrize("kernel", [loaded_or_summed, one_product_or_another], ids=lambda kernel: kernel.__name__)
def test_branches_yield_tiles_that_run_along_other_axes(kernel: kp.JITFunction, flag: int) -> None:
    x, y = torch.randn(16 * 16), torch.randn(16 * 16 * 16)
    check(kernel, (1,), x, y, torch.zeros(17 * 16), flag, S=16, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["full", "causal", "bias"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_attention(dtype: torch.dtype, mode: str) -> None:
    tolerance = {torch.float32: 1e-5}.get(dtype, 2e-2)
    for m, n, d in [(64, 64, 32), (50, 70, 64), (17, 40, 16)]:
        q, k, v = (torch.randn(extent, d).to(dtype) for extent in (m, n, n))
        check(
            attention, (-(-m // 32),), q, k, v, torch.randn(m, n), torch.zeros(m, d), m, n, d**-0.5,
            D=d, BM=32, BN=32, MODE=mode, rtol=tolerance, atol=tolerance,
        )  # fmt: skip


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
