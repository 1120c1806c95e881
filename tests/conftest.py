"""What every test starts from: the same random numbers, whatever ran before it; and a browser, for those that look at pages.

`--share 1/3` runs a third of those tests that take long and are much alike, and all others."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# also of the processes that tests start
os.environ.setdefault("KERNELPACK_VERIFY_PASSES", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads of torch that wait leave the core to other tests

import torch

from kernelpack.cli.verify import share

IN_TURN = (
    "simt/test_ops", "cli/test_doctor", "ops/test_bounds", "opgen/test_unbox", "backends/test_third_party", "ops/test_amx",
    "csrc/test_kernels", "simt/test_paged_attention", "language/test_differential", "opgen/test_tuning",
    "opgen/test_random_host_functions", "passes/test_properties", "opgen/test_checked", "serving/test_sentence_encoder",
    "cli/test_emit_source", "inductor/test_inductor", "opgen/test_optional", "simt/test_native", "serving/test_cmake",
    "ops/test_checked", "simt/test_planted_faults",
)  # fmt: skip
"""Files of tests that share what they have built, the longest first: the parts take turns."""
CASES_IN_TURN = "docs/test_commands"
"""A file whose cases do, one by one."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--share",
        type=share,
        metavar="K/N",
        help="of the tests that take turns only the K-th of N parts; make test-full has all",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked = config.getoption("--share")
    if asked is None:
        return
    part, parts = asked

    def has_its_turn(item: pytest.Item) -> bool:
        name = str(item.path.relative_to(Path(__file__).parent).with_suffix(""))
        if name == CASES_IN_TURN:
            return zlib.crc32(item.name.encode()) % parts == part - 1
        return name not in IN_TURN or IN_TURN.index(name) % parts == part - 1

    left_out = [item for item in items if not has_its_turn(item)]
    items[:] = [item for item in items if has_its_turn(item)]
    config.hook.pytest_deselected(items=left_out)


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
