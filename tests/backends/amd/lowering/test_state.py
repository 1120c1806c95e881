"""How threads of amdgcn wait for each other and exchange words, and where a program is."""

from __future__ import annotations

import pytest

from kernelpack.backends.gpu.lowering.linear_code import i32
from kernelpack.llvm.text import Val
from tests.backends.fragments import in_order
from tests.backends.gpu.lowering.llir import gfx942, text_of


def test_fences_around_a_barrier_make_what_was_written_visible() -> None:
    state = gfx942(4)
    state.barrier()
    assert text_of(state).splitlines() == [
        'fence syncscope("workgroup") release',
        "call void @llvm.amdgcn.s.barrier()",
        'fence syncscope("workgroup") acquire',
    ]


@pytest.mark.parametrize(("mode", "opcode"), [("bfly", "xor"), ("up", "sub"), ("down", "add")])
def test_a_shuffle_takes_four_times_the_number_of_a_lane(mode: str, opcode: str) -> None:
    state = gfx942()
    state.shuffle(mode, Val("i32", "%x"), i32(8))
    in_order(
        text_of(state),
        f"%L = {opcode} i32 %tid, 8\n%A = shl i32 %L, 2\n%R = call i32 @llvm.amdgcn.ds.bpermute(i32 %A, i32 %x)",
    )


def test_a_shuffle_from_one_lane_names_it() -> None:
    state = gfx942()
    state.shuffle("idx", Val("i32", "%x"), Val("i32", "%lane"))
    in_order(text_of(state), "%A = shl i32 %lane, 2\n%R = call i32 @llvm.amdgcn.ds.bpermute(i32 %A, i32 %x)")


@pytest.mark.parametrize(("axis", "byte"), [("x", 0), ("y", 4), ("z", 8)])
def test_programs_are_workgroups_and_hidden_arguments_say_how_many(axis: str, byte: int) -> None:
    state = gfx942()
    state.program(axis)
    state.programs(axis)
    text = text_of(state)
    in_order(
        text, f"%P = call i32 @llvm.amdgcn.workgroup.id.{axis}()\n%H = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()"
    )
    at = f"%A = getelementptr i8, ptr addrspace(4) %H, i64 {byte}\n%R = load i32, ptr addrspace(4) %A, align 4"
    in_order(text, at if byte else "%R = load i32, ptr addrspace(4) %H, align 4")
