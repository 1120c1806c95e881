"""Loads and stores of global memory by PTX: predicates, modifiers of caches, bytes in 16-bit registers, launches that overlap."""

from __future__ import annotations

import pytest

from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.accesses import access
from tests.backends.gpu.lowering.llir import SM80, SM90, lower

END = """
%c4 = arith.constant 4 : i32
%e = arith.muli %n, %c4 : i32
%es = tt.splat %e : i32 -> tensor<128xi32, $L>
%k = arith.cmpi slt, %i, %es : tensor<128xi32, $L>
"""


def test_where_the_mask_is_off_a_load_keeps_what_it_is_filled_with() -> None:
    in_order(
        access("%r = tt.load %a, %k, %x", mask=END),
        """
        %M = icmp slt i32 ...
        %F = bitcast float %x0 to i32
        %G = bitcast float %x3 to i32
        %V = call {i32, i32, i32, i32} asm sideeffect "@$9 ld.global.v4.b32 {$0, $1, $2, $3}, [$8];", "=r,=r,=r,=r,0,1,2,3,l,b"(i32 %F, i32 ..., i32 ..., i32 %G, ptr addrspace(1) ..., i1 %M)
        %X = extractvalue {i32, i32, i32, i32} %V, 0
        """,
    )
    assert count(access("%r = tt.load %a, %k", mask=END), "%A = bitcast float 0x0000000000000000 to i32") == 4


def test_a_mask_that_may_differ_between_neighbours_splits_the_access() -> None:
    text = access("%r = tt.load %a, %m")
    assert (
        count(
            text,
            '%A = call i32 asm sideeffect "@$3 ld.global.b32 $0, [$2];", "=r,0,l,b"(i32 ..., ptr addrspace(1) ..., i1 %m...)',
        )
        == 4
    )


def test_bytes_under_a_mask_travel_in_16_bit_registers() -> None:
    text = access("%r = tt.load %a, %m", "i8", 1)
    in_order(
        text, '%A = call i16 asm sideeffect "@$3 ld.global.b8 $0, [$2];", "=h,0,l,b"(...)\n%B = trunc i16 %A to i8\nreturn %B'
    )
    in_order(
        access("tt.store %a, %x, %m", "i8", 1),
        '%A = zext i8 %x0 to i16\ncall void asm sideeffect "@$2 st.global.b8 [$0], $1;", "l,h,b"(ptr addrspace(1) ..., i16 %A, i1 %m0)',
    )


@pytest.mark.parametrize(
    ("line", "instruction"),
    [
        ("%r = tt.load %a cacheModifier = cg", "ld.global.cg.v4.b32"),
        ("%r = tt.load %a evictionPolicy = evict_first", "ld.global.L1::evict_first.v4.b32"),
        ("%r = tt.load %a cacheModifier = ca evictionPolicy = evict_last", "ld.global.ca.v4.b32"),
        ("%r = tt.load %a {is_volatile = true}", "ld.volatile.global.v4.b32"),
        ("tt.store %a, %x cacheModifier = wt", "st.global.wt.v4.b32"),
        ("tt.store %a, %x evictionPolicy = evict_last", "st.global.L1::evict_last.v4.b32"),
    ],
)
def test_modifiers_of_caches_are_qualifiers(line: str, instruction: str) -> None:
    assert f'asm sideeffect "{instruction} ' in access(line)


def test_what_several_threads_hold_is_stored_by_one_of_them() -> None:
    """16 elements on 32 lanes: the upper half holds copies."""
    in_order(
        access("tt.store %a, %x", size=16, per=1),
        """
        %B = and i32 %tid, 16
        %O = icmp eq i32 %B, 0
        call void asm sideeffect "@$2 st.global.b32 [$0], $1;", "l,r,b"(ptr addrspace(1) ..., i32 ..., i1 %O)
        """,
    )
    in_order(
        access("tt.store %a, %x, %m", size=16, per=1),
        "%O = icmp eq i32 ..., 0\n%A = and i1 %O, %m0\ncall void asm ... i1 %A)",
    )


def test_scalars_are_loaded_by_all_threads_and_stored_by_the_first() -> None:
    text = lower("%r = tt.load %p : !tt.ptr<f32>\ntt.store %p, %r : !tt.ptr<f32>\ntt.return %r : f32", "%p: !tt.ptr<f32>")
    in_order(
        text,
        """
        %A = load i32, ptr addrspace(1) %p, align 4
        %F = icmp eq i32 %tid, 0
        call void asm sideeffect "@$2 st.global.b32 [$0], $1;", "l,r,b"(ptr addrspace(1) %p, i32 ..., i1 %F)
        """,
    )


@pytest.mark.parametrize(("op", "instruction"), [("gdc_wait", "wait"), ("gdc_launch_dependents", "launch_dependents")])
def test_launches_wait_for_each_other_where_they_overlap(op: str, instruction: str) -> None:
    assert lower(f"gpu.{op}", target=SM90) == f'call void asm sideeffect "griddepcontrol.{instruction};", "~{{memory}}"()'
    assert lower(f"gpu.{op}", target=SM80) == ""
