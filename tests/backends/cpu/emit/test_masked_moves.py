"""Masked moves of lanes that a CPU has no instruction for: what is written for them, and that nothing else is read or written."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.emit.masked_moves import is_native
from kernelpack.compiler.stages import compile_ttir, optimise_ttir
from kernelpack.llvm.text import Emitter
from kernelpack.options import Options
from kernelpack.target import Target
from tests.backends.cpu.agreement import ttir_of
from tests.backends.cpu.emit.llir import whole
from tests.backends.cpu.kernels import levels_here, loaded_object
from tests.backends.cpu.plan.plans import ARM, SVE2, V3, V4
from tests.ops.guard_pages import Guarded

LANES = 32


@kp.jit
def move_some(x, mask, out, shift, LANES: tl.constexpr):
    lanes = tl.arange(0, LANES)
    moved = tl.load(mask + lanes) != 0
    value = tl.load(x + lanes - shift, mask=moved, other=7)
    tl.store(out + lanes - shift, value, mask=moved)


@pytest.mark.parametrize(
    ("features", "sizes"),
    [(("neon",), ()), (("avx2",), (4, 8)), (("avx2", "avx512"), (1, 2, 4, 8)), (("neon", "sve2"), (4,))],
    ids=["none", "avx2", "avx512", "sve2"],
)
def test_what_a_cpu_has(features: tuple[str, ...], sizes: tuple[int, ...]) -> None:
    assert tuple(size for size in (1, 2, 4, 8) if is_native(Emitter(frozenset(features)), 4, size)) == sizes


def test_sve_moves_whole_registers_under_a_mask() -> None:
    types = {"x": "*fp32", "mask": "*i8", "out": "*fp32", "shift": "i32", "LANES": LANES}
    text = whole(move_some, SVE2, **types)
    assert text.count("call <4 x float> @llvm.masked.load.v4f32.p0(") == LANES // 4
    assert "copy_lanes" not in text
    assert "copy_lanes_float" in whole(move_some, ARM, **types)


def test_small_elements_are_moved_by_a_function_without_avx512() -> None:
    types = {"x": "*bf16", "mask": "*i8", "out": "*bf16", "shift": "i32", "LANES": LANES}
    text = whole(move_some, V3, **types)
    assert text.count("define internal preserve_allcc void @copy_lanes_i16(") == 1
    assert text.count("call preserve_allcc void @copy_lanes_i16(") == 2 * LANES // 8
    assert "@llvm.masked" not in text
    assert "copy_lanes" not in whole(move_some, V4, **types)
    assert "copy_lanes" not in whole(move_some, V3, **types | {"x": "*fp32", "out": "*fp32"})


MASKS = {
    "none": [False] * LANES,
    "one": [lane == 9 for lane in range(LANES)],
    "the first": [lane < 11 for lane in range(LANES)],
    "the last": [lane >= 13 for lane in range(LANES)],
    "every third": [lane % 3 == 0 for lane in range(LANES)],
}


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.bfloat16, torch.int32], ids=str)
@pytest.mark.parametrize("name", MASKS)
def test_memory_that_the_mask_leaves_out_need_not_be_there(name: str, dtype: torch.dtype) -> None:
    lanes = [lane for lane, moved in enumerate(MASKS[name]) if moved] or [LANES]
    first, size = lanes[0], lanes[-1] - lanes[0] + 1
    mask = torch.tensor(MASKS[name]).to(torch.int8)
    for level in levels_here():
        for at_end in (False, True):
            x = Guarded(torch.arange(1, size + 1).to(dtype), at_end=at_end)
            out = Guarded(torch.zeros(size, dtype=dtype), at_end=at_end)
            arguments = [x.tensor, mask, out.tensor, first]
            module = optimise_ttir(ttir_of(move_some, arguments, {"LANES": LANES}))
            loaded_object(compile_ttir(module, Target.parse(f"cpu:{level}"), Options())).launch((1, 1, 1), arguments)
            expected = torch.where(mask[first : first + size] != 0, x.tensor, 0) if first < LANES else out.tensor * 0
            assert torch.equal(out.tensor, expected), (level, at_end)
            x.release()
            out.release()
