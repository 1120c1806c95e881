"""What lowering a function for NVIDIA's GPUs carries: barriers, shuffles of words, texts, warpgroups."""

from __future__ import annotations

import pytest

from kernelpack.backends.gpu.lowering.linear_code import i32
from kernelpack.llvm.text import Val
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.llir import nvidia, text_of


@pytest.mark.parametrize(
    ("warps", "number", "call"),
    [
        (1, 0, "call void @llvm.nvvm.bar.warp.sync(i32 -1)"),
        (4, 0, "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)"),
        (4, 2, "call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 2, i32 128)"),
    ],
)
def test_barriers_are_of_a_warp_a_block_or_a_role(warps: int, number: int, call: str) -> None:
    made = nvidia(warps)
    made.barrier_number = i32(number)
    made.barrier()
    assert text_of(made).strip() == call


@pytest.mark.parametrize(("mode", "clamp"), [("bfly", 31), ("down", 31), ("up", 0), ("idx", 31)])
def test_shuffles_move_words(mode: str, clamp: int) -> None:
    made = nvidia()
    made.shuffle(mode, Val("i32", "%x"), i32(4))
    in_order(text_of(made), f"%A = call i32 @llvm.nvvm.shfl.sync.{mode}.i32(i32 -1, i32 %x, i32 4, i32 {clamp})")


def test_a_role_of_one_warp_elects_the_thread_that_acts_once() -> None:
    made = nvidia(1)
    made.barrier_number = i32(3)
    made.first_thread()
    in_order(
        text_of(made),
        """
        %A = call i32 asm sideeffect "{\\0A\\09.reg .pred p;\\0A\\09elect.sync _|p, -1;\\0A\\09selp.b32 $0, 1, 0, p;\\0A\\09}", "=r"() convergent
        %B = icmp ne i32 %A, 0
        """,
    )
    for warps, number in ((1, 0), (4, 3)):
        made = nvidia(warps)
        made.barrier_number = i32(number)
        made.first_thread()
        assert "elect" not in text_of(made)


def test_a_text_is_one_constant_however_often_it_is_shown() -> None:
    made = nvidia()
    made.message("hello")
    made.message("hello")
    made.message("other")
    assert made.messages == {"hello": "@message0", "other": "@message1"}
    assert count(text_of(made), "%A = addrspacecast ptr addrspace(1) @message0 to ptr") == 2


def test_a_warpgroup_s_number_is_made_the_same_for_a_warp_once() -> None:
    made = nvidia(8)
    first = made.warpgroup()
    assert made.warpgroup() == first
    in_order(text_of(made), "%A = lshr i32 %tid, 7\n%B = call i32 @llvm.nvvm.shfl.sync.idx.i32(i32 -1, i32 %A, i32 0, i32 31)")
    assert len(made.emit.lines) == 2
