"""An author's op file, and the library that the command line builds from it, once for all tests and processes."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.terminal import kernelpack

SOURCE = '''"""Ops of a person who has read README."""

import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def threshold_kernel(x, out, n, level, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask)
    tl.store(out + offsets, tl.where(value > level, value, 0.0), mask=mask)


@kp.op("threshold(Tensor x, float level) -> Tensor", variants={"x": [tl.float32, tl.float16]})
def threshold(x, level):
    kp.check(x.is_contiguous(), "x must be contiguous:\\tits strides are none")
    out = kp.empty_like(x)
    threshold_kernel[lambda meta: (kp.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), level, BLOCK=256)
    return out
'''


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The op file in a folder of the test's own."""
    file = tmp_path / "my_ops.py"
    file.write_text(SOURCE)
    return file


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> dict[str, Any]:
    """What `kernelpack build --json` says of the op file's library, for the CPU and a GPU. Tests leave it as it is."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "cli"
    folder.mkdir(exist_ok=True)
    record = folder / "record.json"
    with open(folder / "build.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not record.exists():
            (folder / "my_ops.py").write_text(SOURCE)
            command = [
                "build",
                "my_ops.py",
                "--namespace",
                "clitest",
                "--target",
                "cpu:native",
                "--target",
                "cuda:sm_80",
                "--json",
            ]
            done = kernelpack(*command, cwd=folder, KERNELPACK_CACHE_DIR=str(folder / "cache"))
            assert done.returncode == 0, done.stderr
            record.write_text(done.stdout)
        found: dict[str, Any] = json.loads(record.read_text())
    return found
