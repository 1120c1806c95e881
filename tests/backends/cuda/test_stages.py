"""The stages of the CUDA backend: what they end with, and what is refused before them."""

from __future__ import annotations

import pytest

from kernelpack.backends.cuda import stages
from kernelpack.errors import OutOfResources, UnsupportedError
from kernelpack.ir.core import Operation
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
