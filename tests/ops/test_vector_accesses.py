"""Aligned variants for GPUs move several elements of 16 bits at a time: a size of which too little is known makes a kernel move each alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernelpack.opgen.build import plan_library
from kernelpack.opgen.workers.compile import compile_stages

ROOT = Path(__file__).parents[2]
OPS = (
    "add_rms_norm",
    "copy_blocks",
    "embedding",
    "gelu",
    "merge_attention_states",
    "rope_and_cache",
    "sample",
    "silu_and_mul",
    "silu_mul",
)
SHORT = re.compile(r"\b(?:ld|st)\.global\S*\.[bu]16\b.*")


@pytest.mark.parametrize("op", OPS)
def test_no_element_is_moved_alone(op: str) -> None:
    plan = plan_library([ROOT / "ops" / f"{op}.py"], namespace="kernelpack", targets=["cuda:sm_90a"])
    variants = [one for one in plan.variants if one.name.endswith(".aligned") and "-bf16" in one.name and "f8" not in one.name]
    assert variants
    for name, kernel in compile_stages(variants, until="ptx", jobs=1).items():
        assert "global" in kernel.stages["ptx"]
        assert not SHORT.findall(kernel.stages["ptx"]), name
