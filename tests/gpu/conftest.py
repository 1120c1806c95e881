"""Tests that run on a GPU. Without one they are skipped; `--packs FOLDER` runs kernels that were compiled elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelpack.backends.cuda.device.driver import device_capability


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--packs", type=Path, default=None, help="run the kernels that `python -m tests.gpu.packs` put there")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if device_capability() is None:
        for item in items:
            if "gpu" in Path(item.path).parts[-2]:
                item.add_marker(pytest.mark.skip(reason="no GPU"))


@pytest.fixture(scope="session")
def packs(request: pytest.FixtureRequest) -> Path | None:
    folder: Path | None = request.config.getoption("--packs")
    return folder
