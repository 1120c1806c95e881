"""What lowering a function carries for every GPU: threads and warps, who owns an element, words and inline assembly."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelpack.backends.gpu.lowering.linear_code import i32
from kernelpack.backends.gpu.lowering.state import GLOBAL, Lowering, memory_type, register_type
from kernelpack.ir.types import BF16, F8E5M2, F16, F32, I1, PointerType, TensorType, Type
from kernelpack.layout.families import Threads, blocked, spread
from kernelpack.layout.linear import LinearLayout
from kernelpack.llvm.text import Val
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.integers import run
from tests.backends.gpu.lowering.llir import gfx942, nvidia, text_of

VENDORS = pytest.mark.parametrize("new", [nvidia, gfx942])
New = Callable[[int], Lowering]


@pytest.mark.parametrize(
    ("kind", "register", "memory"),
    [
        (F32, "float", "float"),
        (BF16, "bfloat", "bfloat"),
        (F8E5M2, "i8", "i8"),
        (I1, "i1", "i8"),
        (PointerType(F16), "ptr addrspace(1)", "ptr addrspace(1)"),
        (TensorType((8,), I1), "i1", "i8"),
    ],
    ids=str,
)
def test_types_in_registers_and_in_memory(kind: Type, register: str, memory: str) -> None:
    assert (register_type(kind), memory_type(kind)) == (register, memory)


@pytest.mark.parametrize(
    "layout",
    [
        lambda lanes: spread((512,), 4, (0,), Threads(2, lanes)),
        lambda lanes: blocked((lanes // 2, 64), (1, 4), (lanes // 8, 8), (2, 1), (1, 0)),
        lambda lanes: blocked((64, lanes // 2), (2, 1), (8, lanes // 8), (1, 2), (0, 1)),
    ],
)
@VENDORS
def test_coordinates_of_a_thread_are_those_of_the_layout(new: New, layout: Callable[[int], LinearLayout]) -> None:
    made = new(2)
    held = layout(made.lanes)
    for axis in range(len(held.shape)):
        at = made.coordinate(held, axis)
        lines = text_of(made)
        for thread in range(2 * made.lanes):
            expected = held(lane=thread % made.lanes, warp=thread // made.lanes)[axis]
            assert {**run(lines, {"%tid": thread}), "0": 0}[at.name.replace(made.tid.name, "%tid")] == expected


def test_bases_are_those_of_lanes_then_of_warps_scaled_to_bytes() -> None:
    layout = spread((128,), 4, (0,), Threads(1, 32))
    assert nvidia().bases(layout) == [4, 8, 16, 32, 64]
    assert nvidia().bases(layout, 0, 2) == [8, 16, 32, 64, 128]
    assert gfx942(2).bases(spread((128,), 1, (0,), Threads(2, 64))) == [1, 2, 4, 8, 16, 32, 64]


@VENDORS
def test_a_layout_of_other_warps_is_a_defect(new: New) -> None:
    made = new(1)
    with pytest.raises(AssertionError, match="the layout is one of other warps"):
        made.bases(spread((128,), 4, (0,), Threads(1, 96 - made.lanes)))


@pytest.mark.parametrize(
    ("new", "size", "warps", "owners"),
    [
        (nvidia, 128, 1, 32),
        (nvidia, 16, 1, 16),
        (nvidia, 16, 4, 16),
        (nvidia, 64, 4, 64),
        (nvidia, 128, 4, 128),
        (gfx942, 128, 1, 64),
        (gfx942, 16, 1, 16),
        (gfx942, 32, 4, 32),
        (gfx942, 128, 4, 128),
        (gfx942, 256, 4, 256),
    ],
)
def test_of_the_threads_that_hold_copies_one_owns_an_element(new: New, size: int, warps: int, owners: int) -> None:
    made = new(warps)
    owner = made.owner(spread((size,), 1, (0,), Threads(warps, made.lanes)))
    if owner is None:
        assert owners == made.lanes * warps
        return
    lines = text_of(made)
    assert sum(run(lines, {"%tid": thread})[owner.name] for thread in range(made.lanes * warps)) == owners


def test_the_first_thread_owns_a_scalar() -> None:
    made = nvidia()
    assert made.owner_of(F32) is not None
    in_order(text_of(made), "%A = icmp eq i32 %tid, 0")


def test_conditions_that_always_hold_cost_nothing() -> None:
    made = nvidia()
    a, b = Val("i1", "%a"), Val("i1", "%b")
    assert (made.both(None, None), made.both(a, None), made.both(None, b)) == (None, a, b)
    assert not made.emit.lines
    made.both(a, b)
    in_order(text_of(made), "%C = and i1 %a, %b")


def test_shuffles_of_halves_and_doubles_go_through_words() -> None:
    made = nvidia()
    made.shuffle("bfly", Val("half", "%x"), i32(1))
    in_order(
        text_of(made),
        "%A = bitcast half %x to i16\n%B = zext i16 %A to i32\n%C = call i32 ...\n%D = trunc i32 %C to i16\n%E = bitcast i16 %D to half",
    )
    made = nvidia()
    made.shuffle("bfly", Val("double", "%x"), i32(1))
    in_order(
        text_of(made),
        """
        %A = bitcast double %x to i64
        %H = lshr i64 %A, 32
        %L = trunc i64 %A to i32
        %U = trunc i64 %H to i32
        %M = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %L, ...)
        %N = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %U, ...)
        %O = zext i32 %N to i64
        %P = shl i64 %O, 32
        %Q = zext i32 %M to i64
        %R = or i64 %P, %Q
        ... = bitcast i64 %R to double
        """,
    )


def test_words_hold_neighbours_the_first_in_the_low_bits_and_are_not_packed_again() -> None:
    made = nvidia()
    halves = made.unpack(Val("i32", "%w"), "half", 2)
    in_order(
        text_of(made),
        "%A = bitcast i32 %w to <2 x half>\n%B = extractelement <2 x half> %A, i64 0\n%C = extractelement <2 x half> %A, i64 1",
    )
    before = len(made.emit.lines)
    assert made.pack(halves) == Val("i32", "%w")
    assert len(made.emit.lines) == before
    made.pack(halves[::-1])
    assert count(text_of(made), "%A = insertelement <2 x half> ...") == 2


def test_one_element_is_a_word_of_its_own() -> None:
    made = nvidia()
    assert made.unpack(Val("i32", "%w"), "i32", 1) == [Val("i32", "%w")]
    assert made.unpack(Val("i32", "%w"), "float", 1)[0].type == "float"
    assert made.pack([Val("i32", "%x")]) == Val("i32", "%x")


def test_bits_of_values() -> None:
    made = nvidia()
    assert made.as_integer(Val("i8", "%x")) == Val("i8", "%x")
    assert made.as_integer(Val(GLOBAL, "%p")).type == "i64"
    assert made.as_integer(Val("bfloat", "%x")).type == "i16"
    assert made.from_integer(Val("i64", "%x"), GLOBAL).type == GLOBAL
    in_order(
        text_of(made),
        "%A = ptrtoint ptr addrspace(1) %p to i64\n%B = bitcast bfloat %x to i16\n%C = inttoptr i64 %x to ptr addrspace(1)",
    )


def test_inline_assembly_says_what_it_does() -> None:
    made = nvidia()
    made.asm("void", "a;\nb;", "r", [i32(1)])
    made.asm("i32", "c;", "=r", [], pure=True)
    made.asm("i32", "d;", "=r", [], convergent=True)
    lines = [line.strip() for line in made.emit.lines]
    assert lines[0] == 'call void asm sideeffect "a;\\0A\\09b;", "r"(i32 1)'
    assert lines[1].endswith('= call i32 asm "c;", "=r"()')
    assert lines[2].endswith('= call i32 asm sideeffect "d;", "=r"() convergent')
