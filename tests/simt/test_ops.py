"""Ops as they are compiled for GPUs: nothing is reported, and they are as accurate as the accuracy grid asks."""

from __future__ import annotations

import zlib

import pytest

from tests.ops.grid import OPS, Case, cases, check, module_of
from tests.simt.emulated_ops import call

TARGETS = ("cuda:sm_80", "cuda:sm_90a")
TIMES = 4
"""torch's ops for CPUs, which errors are compared with here, add in shorter chains than those for GPUs."""
SAMPLE = {"scaled_matmul": 23}
"""One case in so many is run by `make test`, of other ops one in 9."""


def _problems(target: str, chosen: list[Case]) -> list[str]:
    def problem(case: Case) -> str:
        op = getattr(module_of(case.op), case.op)
        return check(case, run=lambda *args, **kwargs: call(target, op, args, kwargs)[0], times=TIMES)

    return [found for found in map(problem, chosen) if found]


def _sampled(case: Case, target: str) -> bool:
    return zlib.crc32(f"{case} {target}".encode()) % SAMPLE.get(case.op, 9) == 0


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("target", TARGETS)
def test_a_sample_of_the_grid_computes_what_torch_does(target: str, op: str) -> None:
    chosen = [case for case in cases() if case.op == op and _sampled(case, target)]
    assert len(chosen) >= 4
    assert not _problems(target, chosen)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("target", TARGETS)
def test_the_rest_of_the_grid_does_too(target: str, op: str) -> None:
    assert not _problems(target, [case for case in cases() if case.op == op and not _sampled(case, target)])
