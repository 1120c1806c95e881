"""What every test starts from: the same random numbers, whatever ran before it."""

from __future__ import annotations

import os

import pytest
import torch

os.environ.setdefault("KERNELPACK_VERIFY_PASSES", "1")  # also of the processes that tests start


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
