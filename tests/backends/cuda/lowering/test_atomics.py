"""Atomic updates of global memory: once for each element, by an instruction where there is one, under masks, old values for copies."""

from __future__ import annotations

import pytest

from kernelpack.layout.families import Threads, spread
from kernelpack.layout.linear import LinearLayout
from kernelpack.options import Options
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.llir import SM80, SM90, lower

L = {"L": spread((32,), 1, (0,), Threads(1, 32))}


def update(
    what: str,
    kind: str,
    order: str = "relaxed",
    scope: str = "gpu",
    mask: bool = False,
    target: str = SM80,
    layout: LinearLayout | None = None,
    used: bool = False,
) -> str:
    """The lines of an update of a tile of 32 elements, one a thread."""
    tile = "tensor<32x{}, $L>"
    more, kinds = (", %m", f", {tile.format('i1')}") if mask else ("", "")
    pointer, value = tile.format(f"!tt.ptr<{kind}>"), tile.format(kind)
    result = f"\ntt.return %r : {value}" if used else ""
    return lower(
        f"%r = tt.atomic_rmw {what}, {order}, {scope}, %p, %x{more} {{allocation.offset = 64 : i32}} : ({pointer}, {value}{kinds}) -> {value}{result}",
        f"%p: {pointer}, %x: {value}, %m: {tile.format('i1')}",
        {"L": layout} if layout is not None else L,
        target,
    )


@pytest.mark.parametrize(
    ("what", "kind", "suffix", "letter"),
    [
        ("add", "i32", "add.u32", "r"),
        ("fadd", "f32", "add.f32", "r"),
        ("fadd", "f16", "add.noftz.f16", "h"),
        ("max", "i64", "max.s64", "l"),
        ("umin", "i32", "min.u32", "r"),
        ("exch", "f32", "exch.b32", "r"),
        ("xor", "i64", "xor.b64", "l"),
    ],
)
def test_an_update_is_an_instruction(what: str, kind: str, suffix: str, letter: str) -> None:
    text = update(what, kind)
    in_order(
        text,
        f'%A = call i... asm sideeffect "atom.global.gpu.relaxed.{suffix} $0, [$2], $3;", "={letter},0,l,{letter},~{{memory}}"(i... 0, ptr addrspace(1) %p0, ...)',
    )


@pytest.mark.parametrize(("order", "scope"), [("acq_rel", "cta"), ("release", "sys"), ("acquire", "gpu")])
def test_orders_and_scopes_are_qualifiers(order: str, scope: str) -> None:
    assert f"atom.global.{scope}.{order}.add.u32" in update("add", "i32", order, scope)


def test_a_mask_is_a_predicate_and_masked_off_results_are_zero() -> None:
    in_order(
        update("add", "i32", mask=True, used=True),
        """
        %A = call i32 asm sideeffect "@$4 atom.global.gpu.relaxed.add.u32 $0, [$2], $3;", "=r,0,l,r,b,~{memory}"(i32 0, ptr addrspace(1) %p0, i32 %x0, i1 %m0)
        return %A
        """,
    )


def test_bfloat16_has_an_instruction_from_sm_90_on() -> None:
    assert "add.noftz.bf16" in update("fadd", "bf16", target=SM90)
    in_order(update("fadd", "bf16"), '%A = atomicrmw fadd ptr addrspace(1) %p0, bfloat %x0 syncscope("device") monotonic')


def test_what_has_no_instruction_is_a_branch_under_a_mask() -> None:
    in_order(
        update("fadd", "bf16", "acq_rel", "cta", mask=True, used=True),
        """
        br i1 %m0, label %atomic..., label %endatomic...
        atomic...:
        %A = atomicrmw fadd ptr addrspace(1) %p0, bfloat %x0 syncscope("block") acq_rel
        br label %endatomic...
        endatomic...:
        %R = phi bfloat [ %A, %atomic... ], [ 0xR0000, %entry ]
        return %R
        """,
    )


def test_exchanges_compare_bits() -> None:
    tile = "tensor<32xf32, $L>"
    text = lower(
        f"%r = tt.atomic_cas acq_rel, gpu, %p, %x, %y : (tensor<32x!tt.ptr<f32>, $L>, {tile}, {tile}) -> {tile}",
        f"%p: tensor<32x!tt.ptr<f32>, $L>, %x: {tile}, %y: {tile}",
        L,
    )
    in_order(
        text,
        """
        %A = bitcast float %x0 to i32
        %B = bitcast float %y0 to i32
        ... = call i32 asm sideeffect "atom.global.acq_rel.gpu.cas.b32 $0, [$2], $3, $4;", "=r,0,l,r,r,~{memory}"(i32 0, ptr addrspace(1) %p0, i32 %A, i32 %B)
        """,
    )


COPIES = LinearLayout.make({"register": [], "lane": [(1,), (2,), (4,), (8,), (0,)], "warp": [], "block": []}, {"dim0": 16})


def test_of_threads_with_copies_one_updates_and_the_others_get_its_old_value() -> None:
    text = lower(
        """
        %r = tt.atomic_rmw add, relaxed, gpu, %p, %x {allocation.offset = 64 : i32} : (tensor<16x!tt.ptr<i32>, $C>, tensor<16xi32, $C>) -> tensor<16xi32, $C>
        tt.return %r : tensor<16xi32, $C>
        """,
        "%p: tensor<16x!tt.ptr<i32>, $C>, %x: tensor<16xi32, $C>",
        {"C": COPIES},
    )
    in_order(
        text,
        """
        %B = and i32 %tid, 16
        %O = icmp eq i32 %B, 0
        %A = call i32 asm sideeffect "@$4 atom... i1 %O)
        %M = getelementptr i8, ptr addrspace(3) @shared_memory, i64 64
        call void @llvm.nvvm.bar.warp.sync(i32 -1)
        %R = load i32, ptr addrspace(3) ..., align 4
        return %R
        """,
    )


def test_old_values_that_nobody_reads_are_not_given_to_copies() -> None:
    text = lower(
        "%r = tt.atomic_rmw add, relaxed, gpu, %p, %x : (tensor<16x!tt.ptr<i32>, $C>, tensor<16xi32, $C>) -> tensor<16xi32, $C>",
        "%p: tensor<16x!tt.ptr<i32>, $C>, %x: tensor<16xi32, $C>",
        {"C": COPIES},
    )
    assert "shared_memory" not in text


@pytest.mark.parametrize(("order", "barriers"), [("relaxed", 1), ("acquire", 1), ("release", 2), ("acq_rel", 2)])
def test_a_scalar_s_update_releases_what_the_whole_program_wrote(order: str, barriers: int) -> None:
    """One barrier gives the old value to all threads; the other stands before the update."""
    text = lower(
        f"""
        %r = tt.atomic_rmw add, {order}, gpu, %p, %x {{allocation.offset = 0 : i32}} : (!tt.ptr<i32>, i32) -> i32
        tt.return %r : i32
        """,
        "%p: !tt.ptr<i32>, %x: i32",
        options=Options(num_warps=4),
    )
    assert count(text, "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)") == barriers
    in_order(
        text,
        "%F = icmp eq i32 %tid, 0\n%A = call i32 asm ... i1 %F)\nstore i32 %A, ptr addrspace(3) @shared_memory, align 4\n%R = load i32, ptr addrspace(3) @shared_memory, align 4\nreturn %R",
    )


def test_neighbours_are_added_together_where_the_hardware_can() -> None:
    body = """
    %i = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32, $W>
    %q = tt.splat %p : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>, $W>
    %a = tt.addptr %q, %i : tensor<128x!tt.ptr<f32>, $W>, tensor<128xi32, $W>
    %r = tt.atomic_rmw fadd, relaxed, gpu, %a, %x : (tensor<128x!tt.ptr<f32>, $W>, tensor<128xf32, $W>) -> tensor<128xf32, $W>
    """
    arguments = "%p: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %x: tensor<128xf32, $W>"
    wide = {"W": spread((128,), 4, (0,), Threads(1, 32))}
    text = lower(body, arguments, wide, SM90)
    assert count(text, "%A = call ... asm sideeffect ...atom...") == 1
    assert "atom.global.gpu.relaxed.add.v4.f32 {$0, $1, $2, $3}, [$8], {$9, $10, $11, $12};" in text
    assert count(lower(body, arguments, wide, SM80), "%A = call i32 asm sideeffect ...atom...") == 4
