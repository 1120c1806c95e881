"""Builds the sample library once for all tests of this folder, and for all processes of a parallel run."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kernelpack.opgen.build import Built, build
from kernelpack.opgen.load import load

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def sample_built(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Built:
    """The sample ops built for this machine's CPU, a lower CPU level and a GPU."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    with open(shared / "sample.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return build(
            [HERE / "sample_ops.py"],
            namespace="sample",
            targets=["cpu:native", "cpu:x86-64-v3", "cuda:sm_90a"],
            out=shared / "sample",
            jobs=2,
        )


@pytest.fixture(scope="session")
def sample(request: pytest.FixtureRequest) -> ModuleType:
    """The package of the sample library; torch.ops.sample.* exist from here on. SAMPLE_LIBRARY names another copy of it."""
    folder = os.environ.get("SAMPLE_LIBRARY")
    return load(folder if folder is not None else request.getfixturevalue("sample_built").directory)


@pytest.fixture(scope="session")
def development() -> ModuleType:
    """The same ops as Python runs them in development."""
    sys.path.insert(0, str(HERE))
    try:
        import sample_ops
    finally:
        sys.path.remove(str(HERE))
    return sample_ops
