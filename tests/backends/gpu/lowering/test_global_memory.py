"""Loads and stores of global memory: as wide as neighbours and alignment allow, in words of up to 32 bits."""

from __future__ import annotations

import pytest

from kernelpack.backends.gpu.lowering.global_memory import Words, words_of
from kernelpack.layout.families import Threads, spread
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.accesses import access
from tests.backends.gpu.lowering.llir import TARGETS, lower


@pytest.mark.parametrize(
    ("width", "bits", "words"),
    [
        (4, 32, Words(4, 1, "i32")),
        (8, 16, Words(4, 2, "i32")),
        (2, 16, Words(1, 2, "i32")),
        (1, 16, Words(1, 1, "i16")),
        (2, 8, Words(1, 2, "i16")),
        (16, 8, Words(4, 4, "i32")),
        (2, 64, Words(2, 1, "i64")),
        (1, 8, Words(1, 1, "i8")),
    ],
)
def test_an_access_is_cut_into_words_of_up_to_32_bits(width: int, bits: int, words: Words) -> None:
    assert words_of(width, bits) == words


@TARGETS
def test_aligned_neighbours_are_one_vector(target: str) -> None:
    in_order(
        access("%r = tt.load %a", target=target),
        """
        %A = shl i32 %tid, 2
        %P = getelementptr float, ptr addrspace(1) %p, i32 %A
        %V = load <4 x i32>, ptr addrspace(1) %P, align 16
        %X = extractelement <4 x i32> %V, i64 0
        %Y = extractelement <4 x i32> %V, i64 1
        %B = bitcast i32 %X to float
        %C = bitcast i32 %Y to float
        return %B, %C, ...
        """,
    )


@pytest.mark.parametrize(("aligned", "expected"), [(16, 1), (8, 2), (4, 4), (1, 4)])
@TARGETS
def test_vectors_are_no_wider_than_the_alignment(target: str, aligned: int, expected: int) -> None:
    assert count(access("%r = tt.load %a", aligned=aligned, target=target), "%A = load ...") == expected


@TARGETS
def test_halves_travel_in_pairs(target: str) -> None:
    text = access("%r = tt.load %a", "f16", 8, target=target)
    in_order(
        text,
        "%V = load <4 x i32>, ptr addrspace(1) ..., align 16\n%X = extractelement <4 x i32> %V, i64 0\n%H = bitcast i32 %X to <2 x half>",
    )
    assert count(text, "%A = load ...") == 1


_GROUPS = """
    %c16 = arith.constant 16 : i32
    %m = arith.muli %n, %c16 : i32
    %i = tt.make_range {{end = 128 : i32, start = 0 : i32}} : tensor<128xi32, $L>
    %e = tt.splat %m : i32 -> tensor<128xi32, $L>
    %group = arith.divsi %i, %e : tensor<128xi32, $L>
    %inside = arith.cmpi slt, %i, %e : tensor<128xi32, $L>
    %s = tt.splat %p : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>, $L>
    %a = tt.addptr %s, %group : tensor<128x!tt.ptr<f32>, $L>, tensor<128xi32, $L>
    %zero = arith.constant dense<0.0> : tensor<128xf32, $L>
    %r = tt.load %a, %inside, {other} {options}: tensor<128x!tt.ptr<f32>, $L>
    tt.return %r : tensor<128xf32, $L>
"""


@pytest.mark.parametrize(("other", "options", "loads"), [("%zero", "", 1), ("%x", "", 4), ("%zero", "{isVolatile = true} ", 4)])
def test_what_neighbours_read_from_one_place_is_read_once(other: str, options: str, loads: int) -> None:
    """The scale of a group of 16 elements, for the four of a thread."""
    layout = spread((128,), 4, (0,), Threads(1, 32))
    arguments = "%n: i32, %p: !tt.ptr<f32>, %x: tensor<128xf32, $L>"
    text = lower(_GROUPS.format(other=other, options=options), arguments, {"L": layout}, "cuda:sm_80")
    assert text.count("ld.") == loads


@TARGETS
def test_booleans_are_bytes(target: str) -> None:
    text = access("%r = tt.load %a", "i1", 4, target=target)
    in_order(
        text,
        "%W = load i32, ptr addrspace(1) ..., align 4\n%B = bitcast i32 %W to <4 x i8>\n%X = extractelement <4 x i8> %B, i64 0\n%C = icmp ne i8 %X, 0",
    )
    stored = access("tt.store %a, %x", "i1", 4, target=target)
    in_order(stored, "%A = zext i1 %x0 to i8\nstore i32 ..., ptr addrspace(1) ..., align 4")


@TARGETS
def test_a_store_packs_what_a_thread_has(target: str) -> None:
    in_order(
        access("tt.store %a, %x", "f16", 8, target=target),
        """
        %A = insertelement <2 x half> poison, half %x0, i64 0
        %B = insertelement <2 x half> %A, half %x1, i64 1
        %C = bitcast <2 x half> %B to i32
        %V = insertelement <4 x i32> poison, i32 %C, i64 0
        store <4 x i32> ..., ptr addrspace(1) ..., align 16
        """,
    )
