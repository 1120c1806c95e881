"""Ops as they are compiled for GPUs: nothing is reported, and they are as accurate as the accuracy grid asks."""

from __future__ import annotations

import zlib

import pytest
import torch

from kernelpack.simt import Emulator
from ops.rope import Sizes, Strides, reference, rope_kernel
from tests.ops.grid import OPS, Case, cases, check, module_of
from tests.simt.emulated_ops import call

TARGETS = ("cuda:sm_80", "cuda:sm_90a")
TIMES = 4
"""torch's ops for CPUs, which errors are compared with here, add in shorter chains than those for GPUs."""
SAMPLE = {"scaled_matmul": 23, "mha": 89, "matmul": 53, "layer_norm": 53, "sample": 67}
"""One case in so many is run by `make test`, of other ops one in 23."""


def _problems(target: str, chosen: list[Case]) -> list[str]:
    def problem(case: Case) -> str:
        op = getattr(module_of(case.op), case.op)
        return check(case, run=lambda *args, **kwargs: call(target, op, args, kwargs)[0], times=TIMES)

    return [found for found in map(problem, chosen) if found]


def _sampled(case: Case, target: str) -> bool:
    return zlib.crc32(f"{case} {target}".encode()) % SAMPLE.get(case.op, 23) == 0


def _quick(target: str, number: int) -> bool:
    """Whether `make test` runs a target's sample of an op: attention on sm_90a, products on sm_80, of the others each on one."""
    return TARGETS.index(target) == {"mha": 1, "matmul": 0}.get(OPS[number], number % 2)


@pytest.mark.parametrize(
    ("target", "op"),
    [
        (target, op) if _quick(target, number) else pytest.param(target, op, marks=pytest.mark.slow)
        for target in TARGETS
        for number, op in enumerate(OPS)
    ],
)
def test_a_sample_of_the_grid_computes_what_torch_does(target: str, op: str) -> None:
    chosen = [case for case in cases() if case.op == op and _sampled(case, target)]
    assert len(chosen) >= 4
    assert not _problems(target, chosen)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("target", TARGETS)
def test_the_rest_of_the_grid_does_too(target: str, op: str) -> None:
    assert not _problems(target, [case for case in cases() if case.op == op and not _sampled(case, target)])


@pytest.mark.parametrize("target", TARGETS)
def test_one_column_is_summed_in_many_chains(target: str) -> None:
    """In one of 4,096 additions the error is several times that of torch's products of a matrix and a vector."""
    a, column, bias = torch.randn(21, 4096), torch.randn(4096, 1), torch.randn(1)
    out = call(target, module_of("matmul").matmul, (a, column, bias), {"activation": 0})[0]
    exact = a.double() @ column.double() + bias
    error = ((out - exact).norm() / exact.norm()).item()
    assert error < 4e-7


def test_blocks_of_every_size_sum_in_one_order() -> None:
    """A row then has the same bits in calls of any number of rows. The last tile of a has 8 rows, or 26: its other rows count nowhere."""
    b = torch.randn(304, 264).bfloat16()
    for rows in (136, 90):
        a = torch.randn(rows, 304).bfloat16()
        large, *others = [
            call("cuda:sm_90a", module_of("matmul").matmul, (a, b, None), {}, given={"few_blocks": lambda *_, few=few: few})[0]
            for few in (0, 192, 128, 96, 64)
        ]
        torch.testing.assert_close(large.double(), a.double() @ b.double(), rtol=0, atol=0.3)
        assert all(torch.equal(other, large) for other in others)


@pytest.mark.parametrize("ahead", [16, 47])
def test_rope_may_turn_half_of_the_heads_further_on(ahead: int) -> None:
    """Calls that ask for it have results of half a gigabyte and more."""
    x, cos, sin = torch.randn(1, 5, 41, 8), torch.randn(41, 4), torch.randn(41, 4)
    out = torch.full_like(x, float("nan"))
    with Emulator("cuda:sm_90a"):
        rope_kernel[(3 * 3,)](
            x, cos, sin, out, Strides(*x.stride()[:3]), Strides(0, 0, 4), Strides(0, 0, 4), Sizes(5, 41, 8, 4, 1), ahead,
            INTERLEAVED=False, HEADS=2, TILE=16, BLOCK=4,
        )  # fmt: skip
    torch.testing.assert_close(out, reference(x, cos, sin))
