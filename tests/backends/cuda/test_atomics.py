"""Floats side by side are added by one instruction where the hardware does that, and atomics of neighbours are coalesced."""

from __future__ import annotations

import re

import pytest

from kernelpack.layout.encoding import layout_of
from tests.backends.cuda.cases import cases
from tests.backends.cuda.running import emulate, lower

CASES = {case.name: case for case in cases()}


@pytest.mark.parametrize(
    ("name", "added"),
    [
        ("neighbours-float32-992", "add.v4.f32"),
        ("neighbours-float32-992-kept", "add.v4.f32"),
        ("neighbours-float32-700-kept", "add.f32"),  # the mask may end within a vector
        ("neighbours-float16-992-kept", "add.noftz.v8.f16"),
        ("neighbours-bfloat16-992", "add.noftz.v8.bf16"),
        ("neighbours-int32-992-kept", "add.u32"),
    ],
)
def test_neighbours_are_added_as_vectors_where_masks_allow(name: str, added: str) -> None:
    launch = CASES[name].launch()
    _, llir, _ = lower(launch, "cuda:sm_90a")
    assert set(re.findall(r"atom\.global\.gpu\.acq_rel\.(\S+)", llir)) == {added}
    emulate(launch, "cuda:sm_90a")


@pytest.mark.parametrize(("name", "vector"), [("neighbours-int32-992-kept", 1), ("neighbours-float32-992", 4)])
def test_lanes_update_what_lies_side_by_side(name: str, vector: int) -> None:
    ttgir, _, _ = lower(CASES[name].launch(), "cuda:sm_90a")
    (atomic,) = (op for op in ttgir.walk() if op.name == "tt.atomic_rmw")
    assert layout_of(atomic.operands[0]).bases("lane")[0] == (vector,)
