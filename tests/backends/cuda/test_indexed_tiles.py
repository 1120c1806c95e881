"""Loops over tiles whose rows a list names that the loop itself loads, a part of it in each iteration: attention on chosen keys."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kernelpack.language as tl
from kernelpack import jit
from kernelpack.options import Options
from tests.backends.cuda.launch import Launch, fresh, random
from tests.backends.cuda.running import emulate

TARGETS = ["cuda:sm_80", "cuda:sm_90a"]
QUERIES, WIDTH, ROWS, CHOSEN = 16, 64, 200, 80


@jit
def attend_chosen(q, keys, chosen, out, count, BQ: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr):
    """A negative number chooses no row. The tile of positions moves on by a number that the loop computes."""
    d, n = tl.arange(0, D), tl.arange(0, BN)
    query = tl.load(q + tl.arange(0, BQ)[:, None] * D + d[None, :])
    total, most = tl.zeros([BQ, D], tl.float32), tl.full([BQ], float("-inf"), tl.float32)
    weights = tl.zeros([BQ], tl.float32)
    positions = n
    for start in range(0, count, BN):
        row = tl.load(chosen + positions, mask=positions < count, other=-1)
        valid = row >= 0
        key = tl.load(keys + tl.where(valid, row, 0)[:, None] * D + d[None, :], mask=valid[:, None], other=0.0)
        if WIDE:
            scores = tl.dot(query.to(tl.float32), tl.trans(key.to(tl.float32)))
        else:
            scores = tl.dot(query, tl.trans(key))
        scores = tl.where(valid[None, :], scores + (positions - count)[None, :] * 0.125, float("-inf"))
        larger = tl.maximum(most, tl.max(scores, 1))
        p, kept = tl.exp(scores - larger[:, None]), tl.exp(most - larger)
        weights = weights * kept + tl.sum(p, 1)
        total = total * kept[:, None] + tl.dot(p.to(key.dtype), key)
        most = larger
        positions += tl.minimum(start + BN, BN)
    tl.store(out + tl.arange(0, BQ)[:, None] * D + d[None, :], total / weights[:, None])


def chosen(num_stages: int, wide: bool = False) -> Launch:
    q, keys = random(QUERIES, WIDTH, dtype=torch.bfloat16) / 8, random(ROWS, WIDTH, dtype=torch.bfloat16)
    rows = torch.randperm(ROWS)[:CHOSEN].to(torch.int32)
    rows[CHOSEN // 2 :: 7] = -1
    scores = q.double() @ keys[rows.clamp(min=0).long()].double().T + (torch.arange(CHOSEN) - CHOSEN) * 0.125
    expected = scores.masked_fill(rows < 0, -torch.inf).softmax(1) @ keys[rows.clamp(min=0).long()].double()
    arguments: dict[str, Any] = {"q": q, "keys": keys, "chosen": rows, "out": fresh(QUERIES, WIDTH), "count": CHOSEN}
    arguments |= {"BQ": QUERIES, "BN": 32, "D": WIDTH, "WIDE": wide}
    return Launch(attend_chosen, (1,), arguments, {"out": expected}, 1e-2, Options(num_warps=4, num_stages=num_stages))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("num_stages", "wide"), [(1, False), (2, False), (3, True)])
def test_results(target: str, num_stages: int, wide: bool) -> None:
    emulate(chosen(num_stages, wide), target)


@pytest.mark.parametrize("target", TARGETS)
def test_tiles_are_copied_ahead_to_where_the_list_says(target: str) -> None:
    stages = chosen(2).compile(target).stages
    text = str(stages["ttgir"])
    loop = text[text.index("scf.for") : text.index("scf.yield")]
    assert "copies 1 iteration ahead" in str(stages["schedule"])
    assert "32x64x!tt.ptr<bf16>" in loop[loop.index("ttg.async_copy_global_to_local") :].splitlines()[0]
    assert not any("xi32" in line for line in loop.splitlines() if "ttg.local_alloc" in line)  # neither rows nor positions


@jit
def counted(keys, chosen, out, count, BN: tl.constexpr, D: tl.constexpr):
    """The list changes while it is read."""
    total = tl.zeros([16, BN], tl.float32)
    for start in range(0, count, BN):
        row = tl.load(chosen + start + tl.arange(0, BN))
        key = tl.load(keys + row[:, None] * D + tl.arange(0, D)[None, :])
        total += tl.dot(tl.full([16, D], 1.0, tl.bfloat16), tl.trans(key))
        tl.store(chosen + start + tl.arange(0, BN), row + 1)
    tl.store(out + tl.arange(0, 16)[:, None] * BN + tl.arange(0, BN)[None, :], total)


def test_a_list_is_read_once_where_the_loop_writes() -> None:
    rows = torch.arange(CHOSEN, dtype=torch.int32)
    arguments: dict[str, Any] = {
        "keys": random(ROWS, WIDTH, dtype=torch.bfloat16),
        "chosen": rows,
        "out": fresh(16, 16),
    }
    arguments |= {"count": CHOSEN, "BN": 16, "D": WIDTH}
    text = str(Launch(counted, (1,), arguments, {}, 0.0, Options(num_warps=4)).compile("cuda:sm_80").stages["ttgir"])
    loop = text[text.index("scf.for") : text.index("scf.yield")]
    assert sum("tt.load" in line and "xi32" not in line and "<i32>" in line for line in loop.splitlines()) == 1


def test_what_is_widened_for_a_product_is_copied_as_it_was() -> None:
    text = str(chosen(3, wide=True).compile("cuda:sm_80").stages["ttgir"])
    loop = text[text.index("scf.for") : text.index("scf.yield")]
    assert not any("f32" in line and "64x32" in line for line in loop.splitlines() if "ttg.local_alloc" in line)
    assert "copies" in str(chosen(3, wide=True).compile("cuda:sm_80").stages["schedule"])
