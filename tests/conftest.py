"""What every test starts from: the same random numbers, whatever ran before it."""

from __future__ import annotations

import os

import pytest

# also of the processes that tests start
os.environ.setdefault("KERNELPACK_VERIFY_PASSES", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads of torch that wait leave the core to other tests

import torch


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
