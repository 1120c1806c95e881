"""Loops whose tiles lie where a table says: table entries are loaded ahead with the copies that they place."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.options import Options
from tests.backends.cuda.launch import Launch, fresh
from tests.backends.cuda.running import emulate

PAGE, ROWS, SIZE = 16, 32, 64


@kp.jit
def add_pages(a, table, pages, out, n, MASKED: tl.constexpr, PAGE: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr):
    """out = the sum of a's columns times rows of pages, `n` rows in all, wherever they lie."""
    i, row, column = tl.arange(0, 16), tl.arange(0, ROWS), tl.arange(0, SIZE)
    total = tl.zeros([16, SIZE], tl.float32)
    for start in range(0, n, ROWS):
        at = start + row
        left = tl.load(a + i[:, None] * n + at[None, :], mask=at[None, :] < n, other=0.0)
        page = tl.load(table + at // PAGE, mask=at < n, other=0) if MASKED else tl.load(table + at // PAGE)
        place = page * PAGE + at % PAGE
        right = tl.load(pages + place[:, None] * SIZE + column[None, :], mask=at[:, None] < n, other=0.0)
        total = tl.dot(left, right, total)
    tl.store(out + i[:, None] * SIZE + column[None, :], total)


@pytest.mark.parametrize(("target", "stages"), [("cuda:sm_80", 2), ("cuda:sm_90a", 2), ("cuda:sm_90a", 3)])
@pytest.mark.parametrize("masked", [True, False])
def test_tables_are_read_ahead(target: str, stages: int, masked: bool) -> None:
    n = 5 * PAGE if masked else 6 * PAGE
    table = torch.randperm(9)[:6].to(torch.int32)
    a, pages = torch.randn(16, n, dtype=torch.float16), torch.randn(9, PAGE, SIZE, dtype=torch.float16)
    wanted = a.float() @ pages[table.long()].reshape(-1, SIZE)[:n].float()
    arguments = {
        "a": a, "table": table[: -(-n // PAGE)].clone(), "pages": pages, "out": fresh(16, SIZE), "n": n,
        "MASKED": masked, "PAGE": PAGE, "ROWS": ROWS, "SIZE": SIZE,
    }  # fmt: skip
    options = Options(num_warps=2, num_stages=stages)
    emulate(Launch(add_pages, (1,), arguments, {"out": wanted}, options=options, tolerance=1e-2), target)
