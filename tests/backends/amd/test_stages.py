"""The stages of the AMD backend: what they end with, and what is refused before them."""

from __future__ import annotations

import pytest

from kernelpack.backends.amd import stages
from kernelpack.errors import UnsupportedError
from kernelpack.ir.core import Operation
from kernelpack.options import Options
from kernelpack.target import Target

MI300 = Target("amdgpu", "gfx942")


def test_the_last_stage_gives_the_image() -> None:
    assert list(stages.stages(MI300, Options()))[-1] == "hsaco"


def test_what_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="no clusters"):
        stages.stages(MI300, Options(num_ctas=2))
    assert stages.supports(Operation("tt.dot")) == "matrix products are not lowered yet"
