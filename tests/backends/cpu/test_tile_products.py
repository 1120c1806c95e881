"""Products of tiles: how operands are read, packed and laid out, against the interpreter."""

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
from tests.backends.cpu.kernels import levels_here, loaded_object


@kp.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TRANSPOSED: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left = a + rows[:, None] * K + k[None, :]
    right = b + (cols[None, :] * K + k[:, None] if TRANSPOSED else k[:, None] * N + cols[None, :])
    total = tl.zeros((BM, BN), c.dtype.element_ty)
    for start in range(0, K, BK):
        kept = start + k < K
        x = tl.load(left, mask=(rows[:, None] < M) & kept[None, :], other=0.0)
        y = tl.load(right, mask=(cols[None, :] < N) & kept[:, None], other=0.0)
        total = tl.dot(x, y, total, out_dtype=total.dtype)
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
def shallow_product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    tl.store(c + m * N + n[None, :], tl.dot(x, y))


@kp.jit
def product_of_words(x, words, out, M: tl.constexpr, N: tl.constexpr):
    """Byte j of word w has in its low half what is multiplied with 4 w + j, in its high half what is with 16 more."""
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N), tl.arange(0, 4)
    word = tl.load(words + k[:, None] * N + n[None, :])
    shifts = tl.arange(0, 2)[:, None] * 4 + k[None, :] * 8
    codes = (word[None, :, None, :] >> shifts[:, None, :, None]) & 15
    y = tl.reshape(codes.to(x.dtype.element_ty), [32, N])
    tl.store(out + m * N + n[None, :], tl.dot(tl.load(x + m * 32 + tl.arange(0, 32)[None, :]), y, input_precision="ieee"))


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


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_matmul_with_pointers_that_advance(dtype: torch.dtype, transposed: bool) -> None:
    for m, n, k in [(64, 64, 64), (37, 50, 70), (16, 130, 33)]:
        a, b = torch.randn(m, k).to(dtype), (torch.randn(n, k) if transposed else torch.randn(k, n)).to(dtype)
        grid = (-(-m // 32), -(-n // 64))
        check(matmul, grid, a, b, torch.zeros(m, n), m, n, k, BM=32, BN=64, BK=32, TRANSPOSED=transposed, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("rows", [8, 40])
@pytest.mark.parametrize("transposed", [False, True])
def test_products_end_where_their_operands_do(kind: str, rows: int, transposed: bool) -> None:
    """Blocks of 256 along k, and memory that holds what is not finite, or large, after the end. 8 rows of what lies along k have it in the
    lanes."""
    for depth in (1, 63, 64, 65, 200, 256, 257, 449):
        a, b = (torch.randint(-128, 128, (size, depth), dtype=torch.int8).to(getattr(torch, kind)) for size in (rows, 70))
        b = b if transposed else b.T.contiguous()
        held = [torch.full((4096 + tensor.numel(),), 127 if kind == "int8" else float("nan")).to(a.dtype) for tensor in (a, b)]
        for memory, tensor in zip(held, (a, b), strict=True):
            memory[: tensor.numel()] = tensor.reshape(-1)
        out = torch.full((rows, 70), 7, dtype=torch.int32 if kind == "int8" else torch.float32)
        blocks = {"BM": 8 if rows == 8 else 32, "BN": 64, "BK": 256, "TRANSPOSED": transposed}
        matmul[(-(-rows // blocks["BM"]), 2)](*held, out, rows, 70, depth, **blocks)
        wanted = a.double() @ (b.double().T if transposed else b.double())
        torch.testing.assert_close(out.double(), wanted, rtol=1e-6, atol=0)


@kp.jit
def one_row(a, b, c, K, N, BK: tl.constexpr, BN: tl.constexpr):
    """The product of a row, which ends where the arguments say. Each block of b is overwritten before the product takes it."""
    n, k = tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((1, BN), tl.float32)
    for first in range(0, K, BK):
        inside = (first + k < K)[:, None] & (n < N)[None, :]
        x = tl.load(a + first + k, mask=first + k < K, other=0.0)
        at = b + (first + k)[:, None] * N + n[None, :]
        y = tl.load(at, mask=inside, other=0.0)
        tl.store(at, tl.zeros((BK, BN), b.dtype.element_ty), mask=inside)
        total = tl.dot(x[None, :].to(tl.float32), y.to(tl.float32), total, input_precision="ieee")
    tl.store(c + n, tl.sum(total, 0), mask=n < N)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("columns", [1, 7, 40, 72, 100, 128])
def test_one_row_ends_anywhere(dtype: torch.dtype, columns: int) -> None:
    """What lies after the end of b is not finite."""
    for depth in (1, 16, 50):
        a, b = torch.randn(depth).to(dtype), torch.randn(depth, columns).to(dtype)
        memory = torch.full((b.numel() + 4096,), float("nan")).to(dtype)
        memory[: b.numel()] = b.reshape(-1)
        out = torch.full((128,), 7.0)
        one_row[(1,)](a, memory, out, depth, columns, BK=16, BN=128)
        torch.testing.assert_close(out[:columns].double(), a.double() @ b.double(), rtol=1e-5, atol=1e-5)
        assert (out[columns:] == 7).all()
        assert (memory[: b.numel()] == 0).all()
        blocks = {"BM": 1, "BN": 128, "BK": 16, "TRANSPOSED": False}
        check(matmul, (1, 1), a, b, torch.zeros(1, columns), 1, columns, depth, **blocks, rtol=1e-5, atol=1e-5)


def test_operands_read_where_they_lie() -> None:
    a, b = torch.randn(64, 48).T, torch.randn(64, 32)
    close = {"rtol": 1e-5, "atol": 1e-5}
    for stride, other in ((1, 64), (64, 1)):  # neither axis, or one, is known to be contiguous
        check(product, (1,), torch.randn(4096), b, torch.zeros(16, 32), stride, other, M=16, N=32, K=64, CLEAR=False, **close)
    check(product_with_columns, (1,), a, b[:48], torch.zeros(64, 32), 64, M=64, N=32, K=16, **close)
    for batches in (1, 4):
        x, y = torch.randn(batches, 16, 32), torch.randn(batches, 32, 64)
        check(batched_product, (1,), x, y, torch.zeros(batches, 16, 64), B=batches, M=16, N=64, K=32, **close)


@kp.jit
def product_of_batches_side_by_side(a, b, c, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, m, n, k = tl.arange(0, B)[:, None, None], tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + (i * M + m[None, :, None]) * K + k[None, None, :])
    y = tl.load(b + i + (k[None, :, None] * N + n[None, None, :]) * B)
    tl.store(c + (i * M + m[None, :, None]) * N + n[None, None, :], tl.dot(x, y, input_precision="ieee"))


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("batches", [2, 16])
def test_lanes_may_run_along_the_batches(kind: str, batches: int) -> None:
    """Pairs and quads of neighbours along k are turned, as single elements are."""
    torch.manual_seed(0)
    for depth, columns in ((16, 32), (32, 8)):
        x = torch.randint(-3, 4, (batches, 16, depth)).to(getattr(torch, kind))
        y = torch.randint(-3, 4, (depth, columns, batches)).to(getattr(torch, kind))
        out = torch.zeros(batches, 16, columns, dtype=torch.int32 if kind == "int8" else torch.float32)
        check(product_of_batches_side_by_side, (1,), x, y, out, B=batches, M=16, N=columns, K=depth)


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "int8"])
def test_operands_may_be_unpacked_from_words(kind: str) -> None:
    """With columns in one panel, in several, and in less than a vector."""
    torch.manual_seed(0)
    for rows, columns in ((1, 64), (4, 128), (16, 32), (64, 4)):
        x = torch.randint(-3, 4, (rows, 32)).to(getattr(torch, kind))
        words = torch.randint(-(2**31), 2**31, (4, columns), dtype=torch.int32)
        out = torch.zeros(rows, columns, dtype=torch.int32 if kind == "int8" else torch.float32)
        check(product_of_words, (1,), x, words, out, M=rows, N=columns)


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
    assert buffers(torch.bfloat16, BM=1) == ["x", "x.2"]  # nor is b, of which one row takes each element once
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


@pytest.mark.parametrize("depth", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("kinds", ["int8 int8", "uint8 int8", "float16", "bfloat16", "float32", "float64", "float8_e4m3fn"])
def test_products_of_any_depth(kinds: str, depth: int) -> None:
    left, right = (getattr(torch, kind) for kind in (kinds.split() * 2)[:2])
    result = torch.int32 if right is torch.int8 else torch.float64 if left is torch.float64 else torch.float32
    torch.manual_seed(0)
    for m, n in ((1, 1), (4, 16), (16, 64), (64, 2)):
        x = torch.randint(0 if left is torch.uint8 else -4, 5, (m, depth))  # which every type holds
        y = torch.randint(-4, 5, (depth, n))
        for level in levels_here():
            c = torch.zeros((m, n), dtype=result)
            values = [x.to(left), y.to(right), c]
            module = optimise_ttir(ttir_of(shallow_product, values, {"M": m, "N": n, "K": depth}))
            loaded_object(compile_ttir(module, Target.parse(f"cpu:{level}"), Options())).launch((1, 1, 1), values)
            assert torch.equal(c, (x @ y).to(result)), (level, m, n)
