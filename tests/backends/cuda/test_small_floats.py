"""Products of 8-bit floats by mma.sync: as they are on sm_89, as halves elsewhere and where the kernel limits inexact sums."""

from __future__ import annotations

import pytest
import torch

from tests.backends.cuda.product_cases import E4M3, E5M2, small_floats
from tests.backends.cuda.running import emulate

HALVES = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


@pytest.mark.parametrize(
    ("a", "b", "order", "limit", "target", "instruction"),
    [
        (E4M3, E4M3, "c", None, "cuda:sm_89", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"),
        (E5M2, E5M2, "r", None, "cuda:sm_89", "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32"),
        (E4M3, E5M2, "c", None, "cuda:sm_89", HALVES),
        (E4M3, E4M3, "c", 64, "cuda:sm_89", HALVES),
        (E4M3, E4M3, "c", None, "cuda:sm_80", HALVES),
    ],
)
def test_products(a: torch.dtype, b: torch.dtype, order: str, limit: int | None, target: str, instruction: str) -> None:
    launch = small_floats(a, b, order, limit)
    ptx = str(launch.compile(target).stages["ptx"])
    assert {line.split()[0].rstrip(";") for line in ptx.splitlines() if line.strip().startswith("mma.sync")} == {instruction}
    emulate(launch, target)
