"""Barriers in shared memory and named barriers: what the first thread does, and how all threads wait."""

from __future__ import annotations

import pytest

from kernelpack.layout.families import swizzled
from kernelpack.options import Options
from tests.backends.fragments import in_order
from tests.backends.gpu.lowering.llir import SM90, lower

BARRIER = "!ttg.memdesc<1xi64, $B, #ttg.shared_memory>"


def on_barrier(line: str, more: str = "", warps: int = 1) -> str:
    return lower(
        f"{line} : {BARRIER}",
        f"%b: {BARRIER}, %phase: i32, %on: i1{more}",
        {"B": swizzled((1,), (0,))},
        SM90,
        Options(num_warps=warps),
    )


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("ttng.init_barrier %b, 2", '"@$0 mbarrier.init.shared::cta.b64 [$1], $2;", "b,r,r,~{memory}"(i1 %F, i32 %A, i32 2)'),
        ("ttng.inval_barrier %b", '"@$0 mbarrier.inval.shared::cta.b64 [$1];", "b,r,~{memory}"(i1 %F, i32 %A)'),
        ("ttng.arrive_barrier %b", '"@$0 mbarrier.arrive.shared::cta.b64 _, [$1];", "b,r,~{memory}"(i1 %F, i32 %A)'),
    ],
)
def test_the_first_thread_does_it_once(line: str, call: str) -> None:
    in_order(
        on_barrier(line), f"%F = icmp eq i32 %tid, 0\n%A = ptrtoint ptr addrspace(3) %b to i32\ncall void asm sideeffect {call}"
    )


def test_bytes_are_expected_under_a_condition() -> None:
    call = 'call void asm sideeffect "@$0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [$1], $2;", "b,r,r,~{memory}"'
    in_order(on_barrier("ttng.barrier_expect %b, 4096"), f"%F = icmp eq i32 %tid, 0\n{call}(i1 %F, i32 %A, i32 4096)")
    in_order(
        on_barrier("ttng.barrier_expect %b, 4096, %on"),
        f"%F = icmp eq i32 %tid, 0\n%P = and i1 %F, %on\n{call}(i1 %P, i32 %A, i32 4096)",
    )


def test_threads_wait_for_the_phase_of_a_parity() -> None:
    in_order(
        on_barrier("ttng.wait_barrier %b, %phase"),
        'call void asm sideeffect "{...mbarrier.try_wait.parity.shared::cta.b64 complete, [$0], $1;...@complete bra done;...bra again;...}", "r,r,~{memory}"(i32 %A, i32 %phase)',
    )


def test_each_warpgroup_arrives_by_its_own_first_thread() -> None:
    in_order(
        on_barrier("ttng.arrive_barrier %b {every = 4 : i32}", warps=8),
        "%P = and i32 %tid, 127\n%F = icmp eq i32 %P, 0\ncall void asm ...(i1 %F, ...",
    )


def test_each_warp_arrives_after_all_of_its_lanes() -> None:
    in_order(
        on_barrier("ttng.arrive_barrier %b {every = 1 : i32}", warps=8),
        "call void @llvm.nvvm.bar.warp.sync(i32 -1)\n%P = and i32 %tid, 31\n%F = icmp eq i32 %P, 0\ncall void asm ...(i1 %F, ...",
    )


@pytest.mark.parametrize(("op", "intrinsic"), [("wait_barrier_named", "sync"), ("arrive_barrier_named", "arrive")])
def test_kernels_name_the_upper_half_of_a_block_s_barriers(op: str, intrinsic: str) -> None:
    text = lower(f"ttng.{op} %n, 256", "%n: i32", target=SM90)
    in_order(text, f"%N = add i32 %n, 8\ncall void @llvm.nvvm.barrier.cta.{intrinsic}.aligned.count(i32 %N, i32 256)")


def test_initialised_barriers_are_seen_by_other_threads_and_by_copies() -> None:
    text = lower("ttng.fence_mbarrier_init", target=SM90)
    assert (
        text
        == 'call void asm sideeffect "fence.mbarrier_init.release.cluster;\\0A\\09fence.proxy.async.shared::cta;", "~{memory}"()'
    )
