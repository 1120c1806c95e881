"""`make same` sees what it is there to see: another stage, another ttir, a kernel that is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.same.compare import Records, differences, records
from tests.same.recorder import FOLDER

ROOT = Path(__file__).parents[2]
COMPILE = """
import sys
import tests.same.recorder
from kernelpack.compiler.stages import compile_ttir
from kernelpack.ir.parser import parse_module
from kernelpack.options import Options
from kernelpack.target import Target
compile_ttir(parse_module(sys.argv[1]), Target.parse("cpu:x86-64-v3"), Options())
"""
TTIR = """
module {
  tt.func public @twice(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>) {
    %a = tt.load %x : !tt.ptr<f32>
    %b = arith.addf %a, %a : f32
    tt.store %y, %b : !tt.ptr<f32>
    tt.return
  }
}
"""


def compiled(folder: Path, text: str) -> Records:
    """The records of another process that compiles one kernel."""
    environment = os.environ | {FOLDER: str(folder), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", COMPILE, text], env=environment, check=True)
    return records(folder)


def test_a_kernel_is_recorded_stage_by_stage_and_for_every_target(tmp_path: Path) -> None:
    once, again = compiled(tmp_path / "1", TTIR), compiled(tmp_path / "2", TTIR)
    other = compiled(tmp_path / "3", TTIR.replace("addf", "mulf"))
    stages = {key[0]: list(made) for key, made in once.items()}
    assert stages["cpu:x86-64-v3"] == ["cpu_ttir", "tiles", "llir", "object"]
    assert stages["cuda:sm_90a"] == ["ttgir", "llir"]
    assert len(stages) == 16
    assert differences(once, again) == []
    assert differences(once, other) == [f"twice for {target}: its ttir differs" for target in sorted(stages)]


def test_the_first_stage_that_differs_is_named() -> None:
    key = ("cpu:x86-64-v3", "add", "", "1")
    before = {key: {"tiles": frozenset("a"), "llir": frozenset("b"), "object": frozenset("c")}}
    after = {key: {"tiles": frozenset("a"), "llir": frozenset("x"), "object": frozenset("y")}}
    assert differences(before, after) == ["add for cpu:x86-64-v3: differs from llir on"]
    assert differences(before, {key: {"tiles": frozenset("a")}}) == ["add for cpu:x86-64-v3: differs from llir on"]
    assert differences(before, {}) == ["add for cpu:x86-64-v3: is not made any more"]


@pytest.mark.parametrize("side", [0, 1])
def test_a_generated_file_that_only_one_side_has_is_named(side: int) -> None:
    sides: list[Records] = [{}, {}]
    sides[side] = {("generated", "ops.cpp"): {"text": frozenset("a")}}
    assert differences(*sides) == [f"the file ops.cpp: {'was not made before' if side else 'is not made any more'}"]
