"""What is asked for together. tests/passes/data/prefetch_streams.ttir has the operations."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.ttir.prefetch_streams import prefetch_streams
from kernelpack.compiler.stages import optimise_ttir
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute
from tests.backends.cpu.agreement import check, ttir_of


@kp.jit
def sum_of_words(x, out, n, ROWS: tl.constexpr, LANES: tl.constexpr, APART: tl.constexpr, CASE: tl.constexpr):
    lanes = tl.arange(0, LANES)
    policy: tl.constexpr = "" if CASE == "not once" else "evict_first"
    total = tl.zeros([LANES], tl.int32)
    for block in range(n if CASE != "no loop" else 1):
        for row in tl.static_range(ROWS):
            at = x + (block * ROWS + row) * APART + (lanes * 2 if CASE == "every other" else lanes)
            if CASE == "masked":
                total += tl.load(at, mask=lanes < n, other=0, eviction_policy=policy)
            elif CASE == "column":
                total += tl.sum(tl.load(at[:, None], eviction_policy=policy), 1)
            else:
                total += tl.load(at, eviction_policy=policy)
    tl.store(out + lanes, total)


def prefetches(rows: int, lanes: int, apart: int, case: str = "") -> list[Operation]:
    arguments = (torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32), 3)
    module = optimise_ttir(ttir_of(sum_of_words, arguments, {"ROWS": rows, "LANES": lanes, "APART": apart, "CASE": case}))
    return [op for op in prefetch_streams(module).walk() if op.name == "cpu.prefetch"]


@pytest.mark.parametrize(("rows", "lanes", "bytes_"), [(2, 64, 8), (4, 64, 16), (16, 64, 64), (3, 8, 12)])
def test_a_lane_asks_for_its_part(rows: int, lanes: int, bytes_: int) -> None:
    (made,) = prefetches(rows, lanes, lanes)
    assert attribute(made, "bytes") == bytes_


def test_loads_that_overlap_are_one_stretch() -> None:
    (made,) = prefetches(4, 64, 32)
    assert attribute(made, "bytes") == 12  # of 160 elements, three each


@pytest.mark.parametrize("case", ["not once", "masked", "no loop", "every other", "column"])
def test_other_loads_ask_for_themselves(case: str) -> None:
    assert prefetches(4, 64, 64, case) == []


@pytest.mark.parametrize(("rows", "apart"), [(1, 64), (4, 65), (17, 64)], ids=["one", "gaps", "long"])
def test_stretches_of_one_load_and_long_ones_ask_as_they_are_read(rows: int, apart: int) -> None:
    assert prefetches(rows, 64, apart) == []


@pytest.mark.parametrize("rows", [1, 4])
def test_results_stay(rows: int) -> None:
    x = torch.randint(-100, 100, (5 * rows * 64,), dtype=torch.int32)
    check(sum_of_words, (1,), x, torch.zeros(64, dtype=torch.int32), 5, ROWS=rows, LANES=64, APART=64, CASE="")
