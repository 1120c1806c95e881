"""The shipped ops stay inside of their tensors by what their own kernels check: the accuracy grid, and tests of single ops, on a checked
library."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kernelpack.opgen.build import build
from tests.ops.grid import OPS, cases

ROOT = Path(__file__).parents[2]
QUICK = ("rms_norm",)
"""Built and run by make test, too."""
OF_THEIR_OWN = {
    "mla_decode": ("latent_batches",),
    "paged_attention": ("paged_batches", "merge_attention_states", "packed_attention"),
    "repack": ("quantized_blocks",),
}
"""Ops that the grid does not have: the program that tells whether they are right, and what their tests call beside them."""
RUN = """
import runpy, sys
import kernelpack
kernelpack.load(sys.argv[1])
sys.argv = sys.argv[2:]
runpy.run_module(sys.argv[0], run_name="__main__")
"""


def checked_run(ops: Sequence[str], folder: Path, *programs: Sequence[str]) -> list[str]:
    """Builds checked kernels of some ops and runs programs on them, by module and arguments. Returns what they print."""
    sources = [ROOT / "ops" / f"{op}.py" for op in ops]
    build(sources, namespace="kernelpack", targets=["cpu:native"], out=folder, checked=True)
    environment = {**os.environ, "KERNELPACK_LOAD_LIBRARY": "0"}
    said = []
    for program in programs:
        command = [sys.executable, "-c", RUN, str(folder), *program]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        said.append(done.stdout)
    return said


@pytest.mark.parametrize("op", [op if op in QUICK else pytest.param(op, marks=pytest.mark.slow) for op in OPS])
def test_checked_kernels_find_nothing_and_are_as_accurate(op: str, tmp_path: Path) -> None:
    (said,) = checked_run([op], tmp_path / "checked", ["tests.ops.grid", op])
    assert f"{sum(case.op == op for case in cases())} cases, 0 inaccurate" in said


@pytest.mark.slow
@pytest.mark.parametrize("op", OF_THEIR_OWN)
def test_tests_of_other_ops_pass_on_checked_kernels(op: str, tmp_path: Path) -> None:
    program, *beside = OF_THEIR_OWN[op]
    files = [file for name in (op, *beside) if (ROOT / (file := f"tests/ops/test_{name}.py")).exists()]
    tests = ["pytest", "-m", "not slow", "-k", "not cpu", *files]  # those of levels run the program
    accurate, passed = checked_run([op, *beside], tmp_path / "checked", [f"tests.ops.{program}"], tests)
    assert re.search(r"\d+ (cases|weights), 0 ", accurate)
    assert re.search(r"\d+ passed", passed)


def test_every_op_is_tested_on_checked_kernels() -> None:
    ops = {path.stem for path in (ROOT / "ops").glob("*.py") if not path.name.startswith("_")}
    assert ops == {*OPS, *OF_THEIR_OWN, *(op for _, *beside in OF_THEIR_OWN.values() for op in beside)}
