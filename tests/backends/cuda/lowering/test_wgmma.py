"""Products of warpgroups: fences, descriptors, groups in flight, turns. tests/backends/cuda/test_wgmma.py assembles them."""

from __future__ import annotations

import pytest

from kernelpack.layout.encoding import tma_encoding
from kernelpack.layout.families import warpgroup_accumulator
from kernelpack.options import Options
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.llir import SM90, lower

WARPGROUP = Options(num_warps=4)


def product(more: str = "{isAsync = true}", c: str = "%c", kind: str = "f32", steps: int = 2) -> str:
    tile, depth = f"tensor<64x16x{kind}, $C>", 16 * steps
    a = f"!ttg.memdesc<64x{depth}xf16, {tma_encoding((64, depth), 16)}, #ttg.shared_memory>"
    b = f"!ttg.memdesc<{depth}x16xf16, {tma_encoding((depth, 16), 16)}, #ttg.shared_memory>"
    return lower(
        f"%zero = arith.constant dense<0.0> : {tile}\n%r = ttng.warp_group_dot %a, %b, {c} {more} : {a} * {b} -> {tile}\ntt.return %r : {tile}",
        f"%a: {a}, %b: {b}, %c: {tile}",
        {"C": warpgroup_accumulator((64, 16), (4, 1))},
        SM90,
        WARPGROUP,
    )


def test_a_product_is_fenced_issued_step_by_step_and_committed() -> None:
    text = product()
    in_order(
        text,
        """
        %F = call {float, float, float, float, float, float, float, float} asm sideeffect "wgmma.fence.sync.aligned;", "=f,=f,=f,=f,=f,=f,=f,=f,0,1,2,3,4,5,6,7,~{memory}"(float %c0, ...) convergent
        %X = extractvalue {float, float, float, float, float, float, float, float} %F, 0
        %D = call {float, float, float, float, float, float, float, float} asm sideeffect "{...setp.ne.b32 p, 1, 0;...wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {$0, $1, $2, $3, $4, $5, $6, $7}, $8, $9, p, 1, 1, 0, 1;...}", "=f,=f,=f,=f,=f,=f,=f,=f,l,l,0,1,2,3,4,5,6,7"(i64 ..., i64 ..., float %X, ...) convergent
        %Y = extractvalue {float, float, float, float, float, float, float, float} %D, 0
        %E = call ... asm sideeffect "{...wgmma.mma_async...(i64 ..., i64 ..., float %Y, ...) convergent
        call void asm sideeffect "wgmma.commit_group.sync.aligned;", "~{memory}"() convergent
        """,
    )
    assert count(text, "%A = call ... asm sideeffect ...wgmma.mma_async...") == 2
    assert "wait_group" not in text


def test_the_first_step_does_not_read_a_sum_of_zero() -> None:
    text = product(c="%zero")
    in_order(
        text,
        "%D = call ... asm sideeffect ...setp.ne.b32 p, 0, 0;...(i64 ..., i64 ..., float undef, ...\n%E = call ... asm sideeffect ...setp.ne.b32 p, 1, 0;...",
    )


def test_a_product_that_is_not_asynchronous_waits_for_itself() -> None:
    text = product(more="")
    in_order(
        text,
        'call void asm sideeffect "wgmma.commit_group...\n%W = call ... asm sideeffect "wgmma.wait_group.sync.aligned 0;", "=f,=f,=f,=f,=f,=f,=f,=f,0,1,2,3,4,5,6,7,~{memory}"(...) convergent',
    )


def test_part_of_the_summed_dimension_is_multiplied() -> None:
    assert (
        count(product("{isAsync = true, part = array<i32: 0, 16>}"), "%A = call ... asm sideeffect ...wgmma.mma_async...") == 1
    )


@pytest.mark.parametrize(("steps", "late"), [(16, 0), (32, 62)])
def test_many_descriptors_are_moved_where_they_are_used(steps: int, late: int) -> None:
    """LLVM would keep those of a left operand that a loop does not change in registers, two each."""
    assert count(product(steps=steps), '%A = call i64 asm sideeffect "add.s64 $0, $1, ...;", "=l,l"(i64 ...)') == late


def test_descriptors_hold_addresses_in_units_of_sixteen_bytes() -> None:
    in_order(
        product(),
        """
        %A = ptrtoint ptr addrspace(3) %b to i32
        %S = lshr i32 %A, 4
        %M = and i32 %S, 16383
        %W = zext i32 %M to i64
        %D = or i64 %W, ...
        """,
    )


def test_half_sums_share_registers_and_are_never_in_flight() -> None:
    text = product(kind="f16")
    in_order(
        text,
        """
        %A = insertelement <2 x half> poison, half %c0, i64 0
        ... asm sideeffect ...wgmma.mma_async.sync.aligned.m64n16k16.f16.f16.f16 {$0, $1, $2, $3}, ...
        call void asm sideeffect "wgmma.commit_group...
        %W = call ... asm sideeffect "wgmma.wait_group.sync.aligned 0;"...
        %X = call i32 asm "mov.b32 $0, $1;", "=r,r"(i32 ...)
        %Y = bitcast i32 %X to <2 x half>
        """,
    )


def waited(pendings: int) -> str:
    tile = "tensor<64x16xf32, $C>"
    return lower(
        f"%r = ttng.warp_group_dot_wait {{pendings = {pendings} : i32}} of %c : {tile}\ntt.return %r : {tile}",
        f"%c: {tile}",
        {"C": warpgroup_accumulator((64, 16), (4, 1))},
        SM90,
        WARPGROUP,
    )


@pytest.mark.parametrize("pendings", [0, 2])
def test_registers_pass_through_the_wait_for_them(pendings: int) -> None:
    in_order(
        waited(pendings),
        f'%W = call ... asm sideeffect "wgmma.wait_group.sync.aligned {pendings};", ...(float %c0, ...\n%A = extractvalue ... %W, 0\nreturn %A, ...',
    )


def test_a_wait_without_sums_is_one_all_the_same() -> None:
    text = lower("ttng.warp_group_dot_wait {pendings = 0 : i32}", target=SM90, options=WARPGROUP)
    assert text == 'call void asm sideeffect "wgmma.wait_group.sync.aligned 0;", "~{memory}"() convergent'


def test_warpgroups_announce_a_step_to_all_others_and_wait_at_their_own_barrier() -> None:
    text = lower("ttng.arrive_turn %t\nttng.wait_turn %t", "%t: i32", target=SM90, options=Options(num_warps=8))
    in_order(
        text,
        """
        %W = call i32 @llvm.nvvm.shfl.sync.idx.i32(...)
        %O = add i32 %W, 1
        %G = and i32 %O, 1
        %S = shl i32 %G, 1
        %N = add i32 %S, %t
        %B = add i32 %N, ...
        call void @llvm.nvvm.barrier.cta.arrive.aligned.count(i32 %B, i32 256)
        %P = add i32 %W, 0
        call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 ..., i32 256)
        """,
    )
    assert count(text, "call void @llvm.nvvm.barrier.cta.arrive...") == 1


def test_what_threads_wrote_is_seen_by_products() -> None:
    assert (
        lower("ttng.fence_async_shared", target=SM90)
        == 'call void asm sideeffect "fence.proxy.async.shared::cta;", "~{memory}"()'
    )
