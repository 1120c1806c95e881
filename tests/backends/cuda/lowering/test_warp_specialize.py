"""Roles: each warp branches to its own code, with a thread's index, barrier and registers of its own."""

from __future__ import annotations

from kernelpack.options import Options
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.llir import SM90, lower, module


def roles(*roles: tuple[int, int, int, str]) -> str:
    """A kernel whose roles have warps, copies, registers and a body."""
    text = "\n".join(
        f'"ttg.role"() <{{copies = {copies} : i32, num_warps = {warps} : i32, registers = {registers} : i32}}> ({{\n^bb0(%copy: i32):\n{body}\nttg.warp_return\n}}) : () -> ()'
        for warps, copies, registers, body in roles
    )
    return f'"ttg.warp_specialize"() ({{\n{text}\nttg.warp_return\n}}) : () -> ()'


PAIR = roles((4, 1, 40, "gpu.barrier"), (4, 2, 232, "tt.store %p, %copy : !tt.ptr<i32>\ngpu.barrier"))
POINTER = "%p: !tt.ptr<i32>"


def test_warps_branch_to_their_role_and_meet_at_the_end() -> None:
    in_order(
        lower(PAIR, POINTER, target=SM90, options=Options(num_warps=12)),
        """
        call void asm sideeffect "fence.mbarrier_init.release.cluster;\\0A\\09fence.proxy.async.shared::cta;", "~{memory}"()
        call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
        %A = lshr i32 %tid, 5
        %W = call i32 @llvm.nvvm.shfl.sync.idx.i32(i32 -1, i32 %A, i32 0, i32 31)
        %F = icmp ult i32 %W, 4
        br i1 %F, label %role..., label %otherwise...
        role...:
        br label %end...
        otherwise...:
        %S = icmp ult i32 %W, 12
        br i1 %S, label %role..., label %otherwise...
        role...:
        %V = sub i32 %W, 4
        br label %end...
        otherwise...:
        br label %end...
        end...:
        """,
    )


def test_registers_move_from_the_role_that_needs_few() -> None:
    """Twelve warps start with 168 registers a thread."""
    text = lower(PAIR, POINTER, target=SM90, options=Options(num_warps=12))
    in_order(
        text,
        "call void @llvm.nvvm.setmaxnreg.dec.sync.aligned.u32(i32 40)\ncall void @llvm.nvvm.setmaxnreg.inc.sync.aligned.u32(i32 232)",
    )
    assert "setmaxnreg" not in lower(roles((4, 1, 0, "gpu.barrier")), POINTER, target=SM90, options=Options(num_warps=4))


def test_a_role_s_threads_wait_for_each_other_at_a_barrier_of_their_own() -> None:
    """Barrier 0 is the block's, 1 the first role's, 2 and 3 those of the copies of the second."""
    in_order(
        lower(PAIR, POINTER, target=SM90, options=Options(num_warps=12)),
        """
        %C = lshr i32 ..., 2
        %N = add i32 %C, 1
        call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 %N, i32 128)
        %D = lshr i32 ..., 2
        %M = add i32 %D, 2
        call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 %M, i32 128)
        """,
    )


def test_a_role_counts_its_threads_from_zero_and_knows_its_copy() -> None:
    in_order(
        lower(PAIR, POINTER, target=SM90, options=Options(num_warps=12)),
        """
        %V = sub i32 %W, 4
        %C = lshr i32 %V, 2
        %T = sub i32 %tid, 128
        %I = and i32 %T, 127
        %F = icmp eq i32 %I, 0
        call void asm sideeffect "@$2 st.global.b32 [$0], $1;", "l,r,b"(ptr addrspace(1) %p, i32 %C, i1 %F)
        """,
    )


def test_warps_that_a_warpgroup_has_beyond_the_role_do_nothing() -> None:
    text = lower(roles((1, 1, 0, "gpu.barrier")), POINTER, target=SM90, options=Options(num_warps=4))
    in_order(
        text,
        "%V = sub i32 %W, 0\n%N = icmp ult i32 %V, 1\nbr i1 %N, label %working..., label %end...\nworking...:\ncall void @llvm.nvvm.bar.warp.sync(i32 -1)",
    )


def test_a_kernel_is_launched_with_the_warps_of_its_roles() -> None:
    text = module(PAIR, POINTER, target=SM90, options=Options(num_warps=4))
    in_order(text, 'define ptx_kernel void @kernel(ptr addrspace(1) %p.0) "nvvm.reqntid"="384" "nvvm.minctasm"="1" {')
    assert count(text, "call void @llvm.nvvm.setmaxnreg...") == 2


def test_numbers_from_memory_are_made_the_same_for_a_warp_in_roles() -> None:
    """Whoever branches on them, or copies from where they say, then needs no loop over threads."""
    body = "%x = tt.load %p : !tt.ptr<i32>\ntt.store %p, %x : !tt.ptr<i32>"
    shuffle = "%A = call i32 @llvm.nvvm.shfl.sync.idx.i32(i32 -1, i32 %L, i32 0, i32 31)"
    text = lower(roles((1, 1, 0, body)), POINTER, target=SM90, options=Options(num_warps=1))
    in_order(
        text, f"%L = load i32, ptr addrspace(1) %p, align 4\n{shuffle}\ncall void asm ...(ptr addrspace(1) %p, i32 %A, i1 ...)"
    )
    assert "shfl" not in lower(body, POINTER, target=SM90, options=Options(num_warps=1))
