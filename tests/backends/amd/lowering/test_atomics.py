"""Atomic updates and exchanges for amdgcn are LLVM's own, under a branch where a mask or copies ask for one."""

from __future__ import annotations

import pytest

from kernelpack.layout.families import Threads, spread
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.llir import GFX942, lower

L = {"L": spread((64,), 1, (0,), Threads(1, 64))}
TILE = "tensor<64x{}, $L>"


def update(what: str, kind: str, order: str = "relaxed", scope: str = "gpu", mask: str = "") -> str:
    """The lines of an update of a tile of 64 elements, one a lane."""
    pointer, value, condition = TILE.format(f"!tt.ptr<{kind}>"), TILE.format(kind), TILE.format("i1")
    more = f", {condition}" if mask else ""
    return lower(
        f"%r = tt.atomic_rmw {what}, {order}, {scope}, %p, %x{mask} : ({pointer}, {value}{more}) -> {value}\ntt.return %r : {value}",
        f"%p: {pointer}, %x: {value}, %m: {condition}",
        L,
        GFX942,
    )


@pytest.mark.parametrize(
    ("what", "kind", "expected"),
    [
        ("add", "i32", "add ptr addrspace(1) %p0, i32 %x0"),
        ("fadd", "f16", "fadd ptr addrspace(1) %p0, half %x0"),
        ("umin", "i64", "umin ptr addrspace(1) %p0, i64 %x0"),
        ("exch", "f32", "xchg ptr addrspace(1) %p0, float %x0"),  # what LLVM calls otherwise
    ],
)
def test_an_update_is_one_instruction_of_llvm_s(what: str, kind: str, expected: str) -> None:
    in_order(update(what, kind), f'%A = atomicrmw {expected} syncscope("agent") monotonic\nreturn %A')


def test_a_mask_is_a_branch_whose_result_is_zero_elsewhere() -> None:
    in_order(
        update("add", "i32", "acq_rel", "cta", ", %m"),
        """
        br i1 %m0, label %atomic..., label %endatomic...
        %A = atomicrmw add ptr addrspace(1) %p0, i32 %x0 syncscope("workgroup") acq_rel
        endatomic...:
        %R = phi i32 [ %A, %atomic... ], [ 0, %entry ]
        return %R
        """,
    )


def exchange(order: str, kind: str = "f32", size: int = 64) -> str:
    tile = f"tensor<{size}x{{}}, $L>"
    pointer, value = tile.format(f"!tt.ptr<{kind}>"), tile.format(kind)
    return lower(
        f"%r = tt.atomic_cas {order}, gpu, %p, %x, %y {{allocation.offset = 0 : i32}} : ({pointer}, {value}, {value}) -> {value}\ntt.return %r : {value}",
        f"%p: {pointer}, %x: {value}, %y: {value}",
        {"L": spread((size,), 1, (0,), Threads(1, 64))},
        GFX942,
    )


@pytest.mark.parametrize(
    ("order", "success", "failure"),
    [
        ("relaxed", "monotonic", "monotonic"),
        ("acquire", "acquire", "acquire"),
        ("release", "release", "monotonic"),
        ("acq_rel", "acq_rel", "acquire"),
    ],
)
def test_exchanges_compare_bits_and_fail_with_what_failing_may_order(order: str, success: str, failure: str) -> None:
    in_order(
        exchange(order),
        f"""
        %A = bitcast float %x0 to i32
        %B = bitcast float %y0 to i32
        %P = cmpxchg ptr addrspace(1) %p0, i32 %A, i32 %B syncscope("agent") {success} {failure}
        %O = extractvalue {{i32, i1}} %P, 0
        %R = bitcast i32 %O to float
        return %R
        """,
    )


def test_of_lanes_with_copies_one_exchanges() -> None:
    text = exchange("relaxed", "i32", 16)
    in_order(
        text,
        """
        %B = and i32 %tid, 48
        %O = icmp eq i32 %B, 0
        br i1 %O, label %swap..., label %endswap...
        %P = cmpxchg ptr addrspace(1) %p0, i32 %x0, i32 %y0 ...
        %F = extractvalue {i32, i1} %P, 0
        endswap...:
        %R = phi i32 [ %F, %swap... ], [ 0, %entry ]
        """,
    )
    assert count(text, "%A = load i32, ptr addrspace(3) ...") == 1  # the others get its old value
