"""Files of ops that import each other: each is imported once, whatever their order, and what they share is one kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelpack.opgen.build import plan_library
from kernelpack.opgen.emit_source import emit_source
from kernelpack.opgen.sources import find_ops

KERNEL = """
import kernelpack as kp
import kernelpack.language as tl

@kp.jit
def negate(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, -tl.load(x + at, mask=at < n), mask=at < n)

def launch(x):
    out = kp.empty_like(x)
    negate[(kp.cdiv(x.numel(), 64),)](x, out, x.numel())
    return out

@kp.op("middle(Tensor x) -> Tensor", variants={"x": [tl.float32]}, configs={"": kp.Config({"BLOCK": 64})})
def middle(x):
    return launch(x)
"""
USER = """
import kernelpack as kp
import kernelpack.language as tl
from .middle import launch

@kp.op("NAME(Tensor x) -> Tensor", variants={"x": [tl.float32]}, configs={"": kp.Config({"BLOCK": 64})})
def NAME(x):
    return launch(x)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "middle.py").write_text(KERNEL)
    for name in ("before", "then"):
        (tmp_path / f"{name}.py").write_text(USER.replace("NAME", name))
    return tmp_path


@pytest.mark.parametrize("order", [("before", "middle", "then"), ("middle", "then", "before"), ("then", "before", "middle")])
def test_ops_of_several_files_share_a_kernel(order: tuple[str, ...], folder: Path) -> None:
    plan = plan_library([folder / f"{name}.py" for name in order], namespace="several", targets=["cpu:x86-64-v3"])
    assert [op.name for op in plan.ops] == list(order)
    (variant,) = plan.variants
    assert sorted(variant.ops) == ["before", "middle", "then"]


def test_a_file_that_was_edited_is_imported_anew_by_those_that_import_it(folder: Path) -> None:
    assert [op.name for op in find_ops([folder], "several")] == ["before", "middle", "then"]
    (folder / "middle.py").write_text(
        KERNEL.replace("-tl.load", "tl.load").replace("middle(", "centre(").replace("def middle", "def centre")
    )
    assert [op.name for op in find_ops([folder], "several")] == ["before", "centre", "then"]
    plan = plan_library([folder], namespace="several", targets=["cpu:x86-64-v3"])
    (variant,) = plan.variants
    assert "-tl.load" not in variant.kernel.src


MESSAGES = """
import kernelpack as kp
import kernelpack.language as tl

@kp.jit(debug=True)
def positive(x):
    tl.device_assert(x > 0, "must be positive")

@kp.jit
def check(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    loaded = tl.load(x + at, mask=at < n, other=1.0)
    positive(loaded)
    tl.store(out + at, loaded, mask=at < n)

@kp.op("checks(Tensor x) -> Tensor", variants={"x": [tl.float32]}, configs={"": kp.Config({"BLOCK": 64})})
def checks(x):
    out = kp.empty_like(x)
    check[(1,)](x, out, x.numel())
    return out
"""


def test_an_assertion_that_moved_is_named_by_its_line(tmp_path: Path) -> None:
    """Code for CPUs has no other lines in it, so that a kernel that moved was taken from the cache, with the old line."""
    source = tmp_path / "checks.py"
    for above in ("", "# moved\n\n\n"):
        source.write_text(above + MESSAGES)
        emitted = emit_source([source], namespace="moved", targets=["cpu:native"], directory=tmp_path / "moved", jobs=1)
        line = source.read_text().splitlines().index('    tl.device_assert(x > 0, "must be positive")') + 1
        (pack,) = emitted.packs
        assert f"checks.py:{line}".encode() in pack.image
