"""What passes leave in a module is merged and erased: equal conversions become one, and what nobody reads goes."""

from __future__ import annotations

from kernelpack.backends.gpu.passes.clean import clean
from kernelpack.layout.families import Threads, spread
from tests.backends.gpu.ttgir import check

LAYOUTS = {"A": spread((64,), 1, (0,), Threads(1, 32)), "B": spread((64,), 2, (0,), Threads(1, 32))}
POINTERS, TILE, OTHER = "tensor<64x!tt.ptr<i32>, $B>", "tensor<64xi32, $A>", "tensor<64xi32, $B>"


def test_equal_copies_become_one_and_unread_ones_go() -> None:
    check(
        clean,
        f"%x: {TILE}, %p: {POINTERS}, %q: {POINTERS}",
        f"""
        %a = ttg.convert_layout %x : {TILE} -> {OTHER}
        %b = ttg.convert_layout %x : {TILE} -> {OTHER}
        %c = ttg.convert_layout %b : {OTHER} -> {TILE}
        tt.store %p, %a : {POINTERS}
        tt.store %q, %b : {POINTERS}
        """,
        f"""
        %a = ttg.convert_layout %x : {TILE} -> {OTHER}
        tt.store %p, %a : {POINTERS}
        tt.store %q, %a : {POINTERS}
        """,
        LAYOUTS,
    )


def test_copies_in_different_layouts_stay() -> None:
    body = f"""
    %y = arith.addi %x, %x : {TILE}
    %a = ttg.convert_layout %y : {TILE} -> {OTHER}
    %z = arith.addi %a, %a : {OTHER}
    tt.store %p, %z : {POINTERS}
    tt.store %p, %a : {POINTERS}
    """
    check(clean, f"%x: {TILE}, %p: {POINTERS}", body, body, LAYOUTS)
