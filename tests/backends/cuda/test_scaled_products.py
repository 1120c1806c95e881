"""Products that their own iteration reads: scaled before they are summed, or one of a pair whose sum another one adds to."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kernelpack.language as tl
from kernelpack import jit
from kernelpack.options import Options
from tests.backends.cuda.launch import Launch, fresh, random
from tests.backends.cuda.running import emulate
from tests.backends.cuda.schedule.schedules import given_to

TARGETS = ["cuda:sm_80", "cuda:sm_90a"]
COLUMNS, STEP = 32, 32


@jit
def scaled_matmul(a, b, rows_scale, columns_scale, out, depth, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """out = sum over blocks of BK: a [M, K] b [N, K]^T, times a scale of each row [M, K / BK] and each column [K / BK, N]."""
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros([BM, BN], tl.float32)
    for step in range(tl.cdiv(depth, BK)):
        left = tl.load(a + m[:, None] * depth + step * BK + k[None, :])
        right = tl.load(b + n[None, :] * depth + step * BK + k[:, None])
        part = tl.dot(left, right)
        row = tl.load(rows_scale + m * tl.cdiv(depth, BK) + step)
        column = tl.load(columns_scale + step * BN + n)
        total += part * row[:, None] * column[None, :]
    tl.store(out + m[:, None] * BN + n[None, :], total)


def scaled(rows: int, steps: int, num_stages: int) -> Launch:
    a, b = random(rows, steps * STEP, dtype=torch.bfloat16), random(COLUMNS, steps * STEP, dtype=torch.bfloat16)
    row, column = random(rows, steps), random(steps, COLUMNS)
    parts = torch.einsum("msk,nsk->smn", a.double().reshape(rows, steps, STEP), b.double().reshape(COLUMNS, steps, STEP))
    expected = (parts * row.double().T[:, :, None] * column.double()[:, None, :]).sum(0)
    arguments: dict[str, Any] = {"a": a, "b": b, "rows_scale": row, "columns_scale": column, "out": fresh(rows, COLUMNS)}
    arguments |= {"depth": steps * STEP, "BM": rows, "BN": COLUMNS, "BK": STEP}
    options = Options(num_warps=rows // 16, num_stages=num_stages)
    return Launch(scaled_matmul, (1,), arguments, {"out": expected}, 1e-5, options)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("rows", "steps", "num_stages"), [(64, 1, 3), (64, 5, 3), (128, 3, 2), (64, 4, 4)])
def test_products_scaled_in_each_step(target: str, rows: int, steps: int, num_stages: int) -> None:
    emulate(scaled(rows, steps, num_stages), target)


@jit
def pair_of_products(q, k, v, state, out, rows, S: tl.constexpr, D: tl.constexpr):
    """out = (q k^T) v + (q state) / 2 for each block of S rows: what linear attention does in chunks."""
    s, d = tl.arange(0, S)[:, None], tl.arange(0, D)[None, :]
    kept = tl.load(state + tl.arange(0, D)[:, None] * D + d)
    for start in range(0, rows, S):
        at = (start + s) * D + d
        query = tl.load(q + at).to(tl.float32) * 2
        scores = tl.dot(query, tl.trans(tl.load(k + at)).to(tl.float32))
        carried = tl.dot(query, kept) * 0.25
        tl.store(out + at, tl.dot(scores * 0.5, tl.load(v + at).to(tl.float32), carried))


def pairs(num_stages: int) -> Launch:
    rows, size, width = 96, 32, 64
    q, k, v = (random(rows, width, dtype=torch.bfloat16) for _ in range(3))
    state = random(width, width)
    blocks = [tile.double().reshape(-1, size, width) for tile in (q, k, v)]
    expected = (blocks[0] @ blocks[1].mT) @ blocks[2] + blocks[0] @ state.double() / 2
    arguments: dict[str, Any] = {
        "q": q,
        "k": k,
        "v": v,
        "state": state,
        "out": fresh(rows, width),
        "rows": rows,
        "S": size,
        "D": width,
    }
    options = Options(num_warps=2, num_stages=num_stages)
    return Launch(pair_of_products, (1,), arguments, {"out": expected.reshape(rows, width)}, 2e-3, options)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("num_stages", [1, 3])
def test_pairs(target: str, num_stages: int) -> None:
    emulate(pairs(num_stages), target)


def test_what_a_chained_product_adds_to_has_its_layout() -> None:
    function = given_to("stage_shared", pair_of_products, 2, state="*fp32", out="*fp32", rows="i32", S=32, D=64)
    products = [op for op in function.walk() if op.name == "tt.dot"]
    _, carried, last = products
    assert carried.result.type == last.result.type


@jit
def widened_matmul(a, b, out, depth, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, BM)[:, None], tl.arange(0, BN)[:, None], tl.arange(0, BK)[None, :]
    total = tl.zeros([BM, BN], tl.float32)
    for start in range(0, depth, BK):
        left = tl.load(a + m * depth + start + k).to(tl.float32)
        right = tl.load(b + n * depth + start + k).to(tl.float32)
        total = tl.dot(left, right.T, total, input_precision="tf32")
    tl.store(out + m * BN + tl.arange(0, BN)[None, :], total)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [16, 64])
def test_what_was_widened(target: str, dtype: torch.dtype, rows: int) -> None:
    """tf32 holds all of its bits: only sums are rounded."""
    a, b = random(rows, 128, dtype=dtype), random(COLUMNS, 128, dtype=dtype)
    arguments = {"a": a, "b": b, "out": fresh(rows, COLUMNS), "depth": 128, "BM": rows, "BN": COLUMNS, "BK": 32}
    emulate(Launch(widened_matmul, (1,), arguments, {"out": a.double() @ b.double().T}, 1e-5, Options(num_warps=4)), target)
