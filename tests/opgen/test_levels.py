"""Kernels whose code is that of a lower CPU level, and those that have code of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelpack.opgen.build import plan_library
from kernelpack.opgen.workers.compile import compile_variants
from kernelpack.pack.elf import linked_packs
from tests.opgen.test_build import SCALE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def tuned(configs: str) -> str:
    """Returns an op whose block is what configs say."""
    text = SCALE.replace('variants={"x"', f'configs={configs}, variants={{"x"').replace(", BLOCK=256", "")
    return text.replace("[(kp.cdiv(x.numel(), 256),)]", '[lambda meta: (kp.cdiv(x.numel(), meta["BLOCK"]),)]')


def test_kernels_that_gain_nothing_from_a_level_have_the_code_of_a_lower_one(folder: Path) -> None:
    """It is compiled once for both, and is the same whether the lower level is asked for or not."""
    (folder / "scale.py").write_text(SCALE)
    low, high = "cpu:x86-64-v4", "cpu:x86-64-v4+avx512bf16"
    plan = plan_library([folder / "scale.py"], namespace="mine", targets=[low, high])
    packs = compile_variants(plan.variants, jobs=1, cache=False)[0]
    of = {target: [pack for pack in packs.values() if str(pack.target) == target] for target in (low, high)}
    assert len(of[low]) == len(of[high]) > 0
    for lower, higher in zip(of[low], of[high], strict=True):
        assert (lower.code_of, higher.code_of) == ("", lower.entry)
        assert (lower.image, lower.variant) == (higher.image, higher.variant)
    alone = plan_library([folder / "scale.py"], namespace="mine", targets=[high])
    assert list(compile_variants(alone.variants, jobs=1, cache=False)[0].values()) == of[high]


def test_a_level_s_own_config_has_code_of_its_own(folder: Path) -> None:
    """Whether it uses what the level adds or not, and whether the lower level is asked for or not."""
    configs = '{"cpu": kp.Config({"BLOCK": 256}), "cpu:x86-64-v4+avx512bf16": kp.Config({"BLOCK": 512})}'
    (folder / "scale.py").write_text(tuned(configs))
    low, high = "cpu:x86-64-v4", "cpu:x86-64-v4+avx512bf16"
    plan = plan_library([folder / "scale.py"], namespace="mine", targets=[low, high])
    packs = compile_variants(plan.variants, jobs=1, cache=False)[0]
    assert [pack.code_of for pack in packs.values()] == [""] * len(packs)
    assert len(linked_packs(list(packs.values()))) == len(packs) == 4
    alone = plan_library([folder / "scale.py"], namespace="mine", targets=[high])
    made = compile_variants(alone.variants, jobs=1, cache=False)[0]
    assert list(made.values()) == [pack for pack in packs.values() if str(pack.target) == high]


@pytest.mark.parametrize(
    "configs",
    [
        '{"cpu:x86-64-v4": kp.Config({"BLOCK": 256})}',
        '{"cpu": lambda point: {"x86-64-v4": kp.Config({"BLOCK": 256})}[point.target.arch]}',
        '{"cpu": kp.fastest([kp.Config({"BLOCK": 256})], key=[]), "cpu:x86-64-v4": kp.fastest([kp.Config({"BLOCK": 512}), kp.Config({"BLOCK": 256})], key=[])}',
    ],
    ids=["no config", "a function that fails", "fewer configs"],
)
def test_levels_that_are_not_asked_for_need_no_config(folder: Path, configs: str) -> None:
    (folder / "scale.py").write_text(tuned(configs))
    plan = plan_library([folder / "scale.py"], namespace="mine", targets=["cpu:x86-64-v4"])
    assert {str(variant.target) for variant in plan.variants} == {"cpu:x86-64-v4"}
