"""Loads and stores for amdgcn: a branch around what a mask leaves out, one instruction a word where a load is volatile."""

from __future__ import annotations

import pytest

from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.accesses import access
from tests.backends.gpu.lowering.llir import GFX942, lower


def test_where_the_mask_is_off_a_load_gives_what_it_is_filled_with() -> None:
    in_order(
        access("%r = tt.load %a, %m, %x", per=1, target=GFX942),
        """
        %F = bitcast float %x0 to i32
        br i1 %m0, label %load..., label %endload...
        load...:
        %V = load i32, ptr addrspace(1) ..., align 4
        br label %endload...
        endload...:
        %P = phi i32 [ %V, %load... ], [ %F, %entry ]
        %R = bitcast i32 %P to float
        return %R
        """,
    )


def test_a_vector_under_one_mask_is_one_load_and_a_word_each_elsewhere() -> None:
    bound = "%k = tt.splat %on : i1 -> tensor<256xi1, $L>".replace("%on", "%c")
    text = access(
        "%r = tt.load %a, %k", mask=f"%z = arith.constant 0 : i32\n%c = arith.cmpi slt, %n, %z : i32\n{bound}", target=GFX942
    )
    assert count(text, "%A = load <4 x i32>, ptr addrspace(1) ..., align 16") == count(text, "br i1 ...") == 1
    assert count(text, "%A = phi i32 [ %B, %load... ], [ ..., %entry ]") == 4


@pytest.mark.parametrize("modifier", ["cacheModifier = cg", "evictionPolicy = evict_first"])
def test_nothing_is_made_of_modifiers_of_caches(modifier: str) -> None:
    assert access(f"%r = tt.load %a {modifier}", target=GFX942) == access("%r = tt.load %a", target=GFX942)


def test_a_volatile_load_is_one_of_each_word() -> None:
    text = access("%r = tt.load %a {is_volatile = true}", target=GFX942)
    assert count(text, "%A = load volatile i32, ptr addrspace(1) ..., align 4") == 4
    assert count(text, "%A = load <4 x i32>, ...") == 0


def test_a_store_is_under_the_mask_and_of_one_of_the_lanes_with_copies() -> None:
    in_order(
        access("tt.store %a, %x, %m", per=1, size=16, target=GFX942),
        """
        %B = and i32 %tid, 48
        %O = icmp eq i32 %B, 0
        %C = and i1 %O, %m0
        br i1 %C, label %if..., label %endif...
        if...:
        store i32 ..., ptr addrspace(1) ..., align 4
        br label %endif...
        """,
    )


def test_a_scalar_is_stored_by_the_first_thread() -> None:
    in_order(
        lower("tt.store %p, %x : !tt.ptr<f32>", "%p: !tt.ptr<f32>, %x: f32", target=GFX942),
        "%F = icmp eq i32 %tid, 0\nbr i1 %F, label %if..., label %endif...\nstore i32 ..., ptr addrspace(1) %p, align 4",
    )
