"""The shipped ops stay inside of their tensors by what their own kernels check: the accuracy grid on a checked library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelpack.opgen.build import build
from tests.ops.grid import OPS, cases

ROOT = Path(__file__).parents[2]
QUICK = ("rms_norm",)
"""Built and run by make test, too."""
RUN = """
import runpy, sys
import kernelpack
kernelpack.load(sys.argv[1])
sys.argv = sys.argv[1:]
runpy.run_module("tests.ops.grid", run_name="__main__")
"""


@pytest.mark.parametrize("op", [op if op in QUICK else pytest.param(op, marks=pytest.mark.slow) for op in OPS])
def test_checked_kernels_find_nothing_and_are_as_accurate(op: str, tmp_path: Path) -> None:
    library = tmp_path / "checked"
    build([ROOT / "ops" / f"{op}.py"], namespace="kernelpack", targets=["cpu:native"], out=library, checked=True)
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(library), op],
        cwd=ROOT,
        env={**os.environ, "KERNELPACK_LOAD_LIBRARY": "0"},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"{sum(case.op == op for case in cases())} cases, 0 inaccurate" in done.stdout
