"""Floats side by side are added by one instruction where the hardware does that, and atomics of neighbours are coalesced; what no
instruction does is done by exchanges."""

from __future__ import annotations

import re

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.layout.encoding import layout_of
from kernelpack.simt import Emulator
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


@kp.jit
def extremes(x, largest, least, M, N, BM: tl.constexpr, BN: tl.constexpr):
    block = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN]).load([tl.program_id(0) * BM, 0])
    tl.make_tensor_descriptor(largest, [BM, N], [N, 1], [BM, BN]).atomic_max([0, 0], block)
    tl.make_tensor_descriptor(least, [BM, N], [N, 1], [BM, BN]).atomic_min([0, 0], block)


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_that_no_instruction_compares_in_memory(target: str, dtype: torch.dtype) -> None:
    x, largest, least = torch.randn(24, 48).to(dtype), torch.zeros(8, 48).to(dtype), torch.zeros(8, 48).to(dtype)
    with Emulator(target, reachable=[x, largest, least]):
        extremes[(3,)](x, largest, least, 24, 48, BM=8, BN=64)
    blocks = x.view(3, 8, 48)
    assert torch.equal(largest, blocks.amax(0).clamp(min=0))
    assert torch.equal(least, blocks.amin(0).clamp(max=0))
