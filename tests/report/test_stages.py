"""Every stage of a kernel knows which line of source its lines come from, also where the backend does not say it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernelpack.opgen.build import plan_library
from kernelpack.opgen.workers.compile import compile_stages
from kernelpack.report.places import Text, without_lines
from kernelpack.report.stages import NO_LINES, Staged, stages_of
from tests.report.conftest import FILE, line_of

PRODUCT = "total = tl.dot"
EXPONENTIAL = "tl.exp2(factor)"
STORE = "tl.store(out"
SHOWN = {
    ("cuda:sm_90a", "ttir"): (PRODUCT, "tt.dot"),
    ("cuda:sm_90a", "ttgir"): (PRODUCT, "ttng.warp_group_dot"),
    ("cuda:sm_90a", "llir"): (PRODUCT, "wgmma"),
    ("cuda:sm_90a", "ptx"): (EXPONENTIAL, "ex2.approx"),
    ("cuda:sm_90a", "sass"): (EXPONENTIAL, "MUFU.EX2"),
    ("cpu:x86-64-v3", "ttir"): (STORE, "tt.store"),
    ("cpu:x86-64-v3", "cpu_ttir"): (PRODUCT, "tt.dot"),
    ("cpu:x86-64-v3", "tiles"): (PRODUCT, " * "),
    ("cpu:x86-64-v3", "llir"): (PRODUCT, "fma"),
    ("cpu:x86-64-v3", "asm"): (PRODUCT, "vfmadd"),
}


def text_of(staged: Staged, name: str) -> Text:
    return next(stage.text for stage in staged.stages if stage.name == name)


@pytest.mark.parametrize(("target", "stage"), SHOWN)
def test_code_comes_from_the_line_that_says_it(staged: dict[str, Staged], target: str, stage: str) -> None:
    where, code = SHOWN[target, stage]
    text = text_of(staged[target], stage)
    lines = [chain[0] for line, chain in zip(text.lines, text.chains, strict=True) if code in line and chain]
    assert (FILE, line_of(where)) in lines


@pytest.mark.parametrize("target", ["cuda:sm_90a", "cpu:x86-64-v3"])
def test_every_stage_is_shown_and_knows_most_of_its_lines(staged: dict[str, Staged], target: str) -> None:
    names = [stage.name for stage in staged[target].stages]
    assert names == [name for one, name in SHOWN if one == target] + ["schedule"] * (target == "cuda:sm_90a")
    for stage in staged[target].stages:
        known = sum(map(bool, stage.text.chains))
        if stage.name == "schedule":
            assert (known, stage.note) == (0, NO_LINES)
        else:
            assert known > len(stage.text.lines) * 0.4, stage.name


def test_a_function_that_was_inlined_knows_who_called_it(staged: dict[str, Staged]) -> None:
    callers = (FILE, line_of(EXPONENTIAL)), (FILE, line_of("total = scaled"))
    for target, stage in (
        ("cuda:sm_90a", "ttgir"),
        ("cuda:sm_90a", "llir"),
        ("cpu:x86-64-v3", "tiles"),
        ("cpu:x86-64-v3", "llir"),
    ):
        assert callers in text_of(staged[target], stage).chains, (target, stage)


def test_a_stage_is_the_text_that_was_compiled(staged: dict[str, Staged], source: Path) -> None:
    (variant,) = plan_library([source], namespace="report", targets=["cpu:x86-64-v3"]).variants
    kernel = compile_stages([variant], jobs=1)[variant.entry]
    for name in ("ttir", "cpu_ttir", "tiles", "llir"):
        assert "\n".join(text_of(staged["cpu:x86-64-v3"], name).lines) == kernel.stages[name].rstrip("\n")


def test_lines_of_other_code_are_not_shown(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that comes out otherwise when it is made again is shown as it was compiled, and says no lines."""
    (variant,) = plan_library([source], namespace="report", targets=["cpu:x86-64-v3"]).variants
    kernel = compile_stages([variant], jobs=1)[variant.entry]
    kernel.stages["llir"] = kernel.stages["llir"].replace("fmul", "fadd")
    kernel.stages["ttir"] = kernel.stages["ttir"].replace("tt.store", "tt.other")
    staged = stages_of(variant, kernel)
    for name in ("ttir", "llir"):
        assert text_of(staged, name) == without_lines(kernel.stages[name])


def test_without_nvdisasm_the_page_says_how_to_get_it(
    staged: dict[str, Staged], source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelpack.backends.cuda.assemble.toolchain.find_nvdisasm", lambda: None)
    variant = plan_library([source], namespace="report", targets=["cuda:sm_80"]).variants[0]
    found = stages_of(variant, compile_stages([variant], jobs=1)[variant.entry])
    (note,) = (stage.note for stage in found.stages if stage.name == "sass")
    assert re.search(r"nvdisasm was not found. To fix: pip install nvidia-cuda-nvdisasm", note)


def test_no_path_of_this_machine_is_in_a_stage(staged: dict[str, Staged], source: Path) -> None:
    for one in staged.values():
        for stage in one.stages:
            assert str(source.parent) not in "\n".join(stage.text.lines)
            assert {name for chain in stage.text.chains for name, _ in chain} <= {FILE}
