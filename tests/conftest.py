"""What every test starts from: the same random numbers, whatever ran before it; and a browser, for those that look at pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

# also of the processes that tests start
os.environ.setdefault("KERNELPACK_VERIFY_PASSES", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads of torch that wait leave the core to other tests

import torch


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium by playwright; skips where it does not start."""
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        except Error as problem:
            pytest.skip(f"no Chromium starts: {problem}")
        yield started
        started.close()
