"""The stages of the CUDA backend: what they end with, and what is refused before them."""

from __future__ import annotations

import pytest

from kernelpack.backends.cuda import stages
from kernelpack.errors import OutOfResources, UnsupportedError
from kernelpack.ir.core import Operation
from kernelpack.ir.text import parse_module
from kernelpack.options import Options
from kernelpack.target import Target

HOPPER, AMPERE = Target("cuda", "sm_90a"), Target("cuda", "sm_80")


def test_the_last_stage_gives_machine_code_or_ptx_for_drivers() -> None:
    assert list(stages.stages(HOPPER, Options()))[-1] == "cubin"
    assert list(stages.stages(Target("cuda", "sm_80", ("ptx",)), Options()))[-1] == "ptx"


def test_options_that_a_target_cannot_have_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="num_ctas=2: sm_80 has no clusters"):
        stages.stages(AMPERE, Options(num_ctas=2))
    with pytest.raises(OutOfResources, match="2048 threads"):
        stages.stages(HOPPER, Options(num_warps=64))


def test_what_is_refused_by_name() -> None:
    assert "cuda:sm_90a" in str(stages.supports(Operation("ttg.warp_specialize"), AMPERE))
    assert stages.supports(Operation("cpu.check_access"), HOPPER) == "the CUDA backend has no lowering for it"


@pytest.mark.parametrize(("kind", "least"), [("f16", 16), ("f32", 16), ("f64", 4), ("i8", 32), ("f8E4M3FN", 32)])
def test_products_below_the_least_depth_are_refused(kind: str, least: int) -> None:
    total = {"f64": "f64", "i8": "i32"}.get(kind, "f32")
    for depth in (least // 2, least):
        module = parse_module(f"""
            tt.func public @f(%a: tensor<16x{depth}x{kind}>, %b: tensor<{depth}x16x{kind}>, %c: tensor<16x16x{total}>) {{
              %d = tt.dot %a, %b, %c : tensor<16x{depth}x{kind}> * tensor<{depth}x16x{kind}> -> tensor<16x16x{total}>
              tt.return
            }}""")
        (product,) = (op for op in module.walk() if op.name == "tt.dot")
        reason = stages.supports(product, HOPPER)
        assert reason is None if depth == least else f"K >= {least}" in str(reason)
