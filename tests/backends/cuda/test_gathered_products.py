"""Products of rows that a loaded list names, scaled block by block: what mixtures of experts compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kernelpack.language as tl
from kernelpack import jit
from kernelpack.ir.types import PointerType, element_of
from kernelpack.options import Options
from tests.backends.cuda.launch import Launch, fresh, random
from tests.backends.cuda.running import emulate, lower

TARGETS = ["cuda:sm_80", "cuda:sm_90a"]
ROWS, COLUMNS, DEPTH, BLOCK = 100, 64, 160, 32


@jit
def gathered_matmul(a, rows, a_scale, b, b_scale, c, depth, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.load(rows + tl.program_id(0) * BM + tl.arange(0, BM))
    column = tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_at = a + row[:, None] * depth + inner[None, :]
    b_at = b + inner[:, None] + column[None, :] * depth
    steps = tl.cdiv(depth, BK)
    total = tl.zeros([BM, BN], tl.float32)
    for step in range(steps):
        x = tl.load(a_at, mask=inner[None, :] < depth - step * BK, other=0.0)
        y = tl.load(b_at, mask=inner[:, None] < depth - step * BK, other=0.0)
        x_scale = tl.load(a_scale + row * steps + step)
        y_scale = tl.load(b_scale + column * steps + step)
        total += tl.dot(x, y) * x_scale[:, None] * y_scale[None, :]
        a_at += BK
        b_at += BK
    out = tl.program_id(0) * BM + tl.arange(0, BM)
    tl.store(c + out[:, None] * BN + column[None, :], total)


def gathered(num_stages: int) -> Launch:
    steps = -(-DEPTH // BLOCK)
    rows = torch.randperm(ROWS)[:64].to(torch.int32)
    a, b = random(ROWS, DEPTH, dtype=torch.float16), random(COLUMNS, DEPTH, dtype=torch.float16)
    a_scale, b_scale = random(ROWS, steps, dtype=torch.float32), random(COLUMNS, steps, dtype=torch.float32)
    wide = [scale.repeat_interleave(BLOCK, 1)[:, :DEPTH].double() for scale in (a_scale, b_scale)]
    expected = (a.double() * wide[0])[rows.long()] @ (b.double() * wide[1]).T
    arguments: dict[str, Any] = {"a": a, "rows": rows, "a_scale": a_scale, "b": b, "b_scale": b_scale}
    arguments |= {"c": fresh(64, COLUMNS), "depth": DEPTH, "BM": 64, "BN": COLUMNS, "BK": BLOCK}
    return Launch(gathered_matmul, (1,), arguments, {"c": expected}, 1e-5, Options(num_stages=num_stages))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("num_stages", [1, 3])
def test_results(target: str, num_stages: int) -> None:
    emulate(gathered(num_stages), target)


@pytest.mark.parametrize(("target", "in_registers"), [("cuda:sm_80", 0), ("cuda:sm_90a", 2)])
def test_all_that_the_loop_reads_runs_ahead(target: str, in_registers: int) -> None:
    """Scales are copied too; beside a product of warpgroups they are loaded for a later iteration, to which they are passed on."""
    function, _, _ = lower(gathered(3), target)
    loop = next(op for op in function.walk() if op.name == "scf.for")
    copies = [op for op in loop.walk() if op.name == "ttg.async_copy_global_to_local"]
    loads = [op for op in loop.walk() if op.name == "tt.load"]
    assert (len(loads), len(copies)) == (in_registers, 4 - in_registers)
    assert all([user.name for user in load.result.users()] == ["scf.yield"] for load in loads)


@pytest.mark.parametrize("target", TARGETS)
def test_row_numbers_change_layouts_before_addresses_are_made_of_them(target: str) -> None:
    function, _, _ = lower(gathered(3), target)
    moved = [op.operands[0].type for op in function.walk() if op.name == "ttg.local_alloc" and op.operands]
    assert not any(isinstance(element_of(kind), PointerType) for kind in moved)
