"""A benchmark of nothing much, for tests: additions, and a record of which process computed them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from benchmarks.measure import FAST_MKL, OURS, Case, Prepared


def cases(device: str, quick: bool) -> Sequence[Case]:
    assert quick
    return [Case("adds", "GB/s", 8e-9, device, ("stock torch", FAST_MKL))]


def prepare(case: Case) -> Prepared:
    return Prepared(
        lambda: (torch.ones(4),),
        {OURS: lambda x: x + 1, "stock torch": lambda x: x.add(1), FAST_MKL: in_fast_process, "wrong": lambda x: x + 2},
    )


def in_fast_process(x: torch.Tensor) -> torch.Tensor:
    """Fails in a process where MKL does not hear that the CPU is Intel's."""
    assert ctypes.CDLL(None).mkl_serv_intel_cpu_true() == 1
    return x + 1
