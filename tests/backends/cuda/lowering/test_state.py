"""What lowering a function carries: threads and warps, who owns an element, barriers, shuffles, words and inline assembly."""

from __future__ import annotations

import pytest
from kernelpack.backends.cuda.lowering.linear_code import i32

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.cuda.context import CudaContext
from kernelpack.backends.cuda.lowering import LOWERINGS
from kernelpack.backends.cuda.lowering.state import GLOBAL, Lowering, memory_type, register_type
from kernelpack.ir.types import BF16, F8E5M2, F16, F32, I1, PointerType, TensorType, Type
from kernelpack.layout.families import spread
from kernelpack.llvm.text import Val
from kernelpack.options import Options
from kernelpack.target import Target
from tests.backends.cuda.lowering.integers import run
from tests.backends.cuda.lowering.llir import SM80, parse
from tests.backends.fragments import count, in_order


def state(warps: int = 1) -> Lowering:
    options = Options(num_warps=warps)
    facts = AxisInfoAnalysis(parse("", "").body.operations[0])
    made = Lowering(CudaContext(Target.parse(SM80), options, "f").features, options, facts, LOWERINGS)
    made.emit.lines.clear()
    return made


def text(made: Lowering) -> str:
    return "\n".join(made.emit.lines).replace(made.tid.name, "%tid")


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


@pytest.mark.parametrize(("size", "warps", "owners"), [(128, 1, 32), (16, 1, 16), (16, 4, 16), (64, 4, 64), (128, 4, 128)])
def test_of_the_threads_that_hold_copies_one_owns_an_element(size: int, warps: int, owners: int) -> None:
    made = state(warps)
    owner = made.owner(spread((size,), 1, (0,), warps))
    if owner is None:
        assert owners == 32 * warps
        return
    lines = text(made)
    assert sum(run(lines, {"%tid": thread})[owner.name] for thread in range(32 * warps)) == owners


def test_the_first_thread_owns_a_scalar() -> None:
    made = state()
    assert made.owner_of(F32) is not None
    in_order(text(made), "%A = icmp eq i32 %tid, 0")


def test_conditions_that_always_hold_cost_nothing() -> None:
    made = state()
    a, b = Val("i1", "%a"), Val("i1", "%b")
    assert (made.both(None, None), made.both(a, None), made.both(None, b)) == (None, a, b)
    assert not made.emit.lines
    made.both(a, b)
    in_order(text(made), "%C = and i1 %a, %b")


@pytest.mark.parametrize(
    ("warps", "number", "call"),
    [
        (1, 0, "call void @llvm.nvvm.bar.warp.sync(i32 -1)"),
        (4, 0, "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)"),
        (4, 2, "call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 2, i32 128)"),
    ],
)
def test_barriers_are_of_a_warp_a_block_or_a_role(warps: int, number: int, call: str) -> None:
    made = state(warps)
    made.barrier_number = i32(number)
    made.barrier()
    assert text(made).strip() == call


@pytest.mark.parametrize(("mode", "clamp"), [("bfly", 31), ("down", 31), ("up", 0), ("idx", 31)])
def test_shuffles_move_words(mode: str, clamp: int) -> None:
    made = state()
    made.shuffle(mode, Val("i32", "%x"), i32(4))
    in_order(text(made), f"%A = call i32 @llvm.nvvm.shfl.sync.{mode}.i32(i32 -1, i32 %x, i32 4, i32 {clamp})")


def test_shuffles_of_halves_and_doubles_go_through_words() -> None:
    made = state()
    made.shuffle("bfly", Val("half", "%x"), i32(1))
    in_order(
        text(made),
        "%A = bitcast half %x to i16\n%B = zext i16 %A to i32\n%C = call i32 ...\n%D = trunc i32 %C to i16\n%E = bitcast i16 %D to half",
    )
    made = state()
    made.shuffle("bfly", Val("double", "%x"), i32(1))
    in_order(
        text(made),
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
    made = state()
    halves = made.unpack(Val("i32", "%w"), "half", 2)
    in_order(
        text(made),
        "%A = bitcast i32 %w to <2 x half>\n%B = extractelement <2 x half> %A, i64 0\n%C = extractelement <2 x half> %A, i64 1",
    )
    before = len(made.emit.lines)
    assert made.pack(halves) == Val("i32", "%w")
    assert len(made.emit.lines) == before
    made.pack(halves[::-1])
    assert count(text(made), "%A = insertelement <2 x half> ...") == 2


def test_one_element_is_a_word_of_its_own() -> None:
    made = state()
    assert made.unpack(Val("i32", "%w"), "i32", 1) == [Val("i32", "%w")]
    assert made.unpack(Val("i32", "%w"), "float", 1)[0].type == "float"
    assert made.pack([Val("i32", "%x")]) == Val("i32", "%x")


def test_bits_of_values() -> None:
    made = state()
    assert made.as_integer(Val("i8", "%x")) == Val("i8", "%x")
    assert made.as_integer(Val(GLOBAL, "%p")).type == "i64"
    assert made.as_integer(Val("bfloat", "%x")).type == "i16"
    assert made.from_integer(Val("i64", "%x"), GLOBAL).type == GLOBAL
    in_order(
        text(made),
        "%A = ptrtoint ptr addrspace(1) %p to i64\n%B = bitcast bfloat %x to i16\n%C = inttoptr i64 %x to ptr addrspace(1)",
    )


def test_a_text_is_one_constant_however_often_it_is_shown() -> None:
    made = state()
    made.message("hello")
    made.message("hello")
    made.message("other")
    assert made.messages == {"hello": "@message0", "other": "@message1"}
    assert count(text(made), "%A = addrspacecast ptr addrspace(1) @message0 to ptr") == 2


def test_inline_assembly_says_what_it_does() -> None:
    made = state()
    made.asm("void", "a;\nb;", "r", [i32(1)])
    made.asm("i32", "c;", "=r", [], pure=True)
    made.asm("i32", "d;", "=r", [], sync=True)
    lines = [line.strip() for line in made.emit.lines]
    assert lines[0] == 'call void asm sideeffect "a;\\0A\\09b;", "r"(i32 1)'
    assert lines[1].endswith('= call i32 asm "c;", "=r"()')
    assert lines[2].endswith('= call i32 asm sideeffect "d;", "=r"() convergent')


def test_a_warpgroup_s_number_is_made_the_same_for_a_warp_once() -> None:
    made = state(8)
    first = made.warpgroup()
    assert made.warpgroup() == first
    in_order(text(made), "%A = lshr i32 %tid, 7\n%B = call i32 @llvm.nvvm.shfl.sync.idx.i32(i32 -1, i32 %A, i32 0, i32 31)")
    assert len(made.emit.lines) == 2
