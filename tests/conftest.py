"""What every test starts from: the same random numbers, whatever ran before it; and a browser, for those that look at pages.

`--share 1/6` runs a sixth of those tests that take long and are much alike, and all others."""

from __future__ import annotations

import os
import shutil
from collections import Counter
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
    "opgen/test_consumers", "simt/test_ops", "cli/test_doctor", "opgen/test_unbox", "ops/test_bounds", "backends/cpu/test_tile_products",
    "backends/test_third_party", "simt/test_mla_decode", "simt/test_instructions", "cli/test_trace", "opgen/test_kernels_library",
    "ops/test_amx", "pack/test_verify", "csrc/test_kernels", "ship/test_signature", "ship/test_manifest",
    "backends/cpu/emit/test_product_in_tiles", "simt/test_paged_attention", "ops/test_sample", "opgen/test_linked_code",
    "language/test_differential", "serving/language_model/test_tokenizer", "opgen/test_tuning", "ops/test_repack",
    "passes/test_properties", "opgen/test_random_host_functions", "opgen/test_checked", "serving/test_sentence_encoder",
    "inductor/test_inductor", "cli/test_emit_source", "opgen/test_optional", "simt/test_native", "serving/test_cmake",
    "ops/test_checked", "simt/test_planted_faults",
)  # fmt: skip
"""Files of tests that share what they have built, the longest first: the parts take turns, so that each is as long as the others."""
CASES_IN_TURN = ("docs/test_commands", "ops/test_bad_input", "backends/cuda/test_cases", "ops/test_consumers")
"""Files whose cases do, one by one."""


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
    seen = Counter[str]()

    def has_its_turn(item: pytest.Item) -> bool:
        name = _file(item)
        if name in CASES_IN_TURN:
            seen[name] += 1
            return seen[name] % parts == part - 1
        if name not in IN_TURN:
            return True
        there_and_back, place = divmod(IN_TURN.index(name), parts)
        return part - 1 == (parts - 1 - place if there_and_back % 2 else place)

    chosen = [(item, has_its_turn(item)) for item in items]
    items[:] = [item for item, has in chosen if has]
    config.hook.pytest_deselected(items=[item for item, has in chosen if not has])


def _file(item: pytest.Item) -> str:
    return str(item.path.relative_to(Path(__file__).parent).with_suffix(""))


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
