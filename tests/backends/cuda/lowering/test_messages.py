"""Printing by vprintf, with program and place; assertions that stop the grid."""

from __future__ import annotations

import re

import pytest

from kernelpack.layout.families import Threads, spread
from kernelpack.layout.linear import LinearLayout
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.llir import lower, module

L = {"L": spread((64,), 2, (0,), Threads(1, 32))}


def messages(text: str) -> list[str]:
    return [found.replace("\\0A", "\n") for found in re.findall(r'c"(.*?)\\00"', text)]


def printed(kind: str, prefix: str = " x: ", signed: int = 1, more: str = "") -> str:
    """The module of a kernel that prints a scalar."""
    return module(
        f'"tt.print"(%x) <{{is_signed = array<i32: {signed}>, prefix = "{prefix}"{more}}}> : ({kind}) -> ()', f"%x: {kind}"
    )


@pytest.mark.parametrize(
    ("kind", "signed", "more", "form"),
    [
        ("i32", 1, "", "%i"),
        ("i32", 0, "", "%u"),
        ("i64", 1, "", "%lli"),
        ("i16", 1, ", hex = true", "0x%04x"),
        ("i64", 0, ", hex = true", "0x%016llx"),
        ("f32", 1, "", "%f"),
        ("f16", 1, ", hex = true", "%a"),
        ("!tt.ptr<f32>", 0, "", "%p"),
    ],
)
def test_a_value_has_the_conversion_of_its_type(kind: str, signed: int, more: str, form: str) -> None:
    assert messages(printed(kind, signed=signed, more=more)) == [f"pid (%u, %u, %u) idx () x: {form}\n"]


def test_values_lie_in_a_structure_that_vprintf_reads() -> None:
    in_order(
        printed("f32"),
        """
        %S = alloca {i32, i32, i32, double}, align 8
        %X = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
        %D = fpext float ... to double
        %A = getelementptr {i32, i32, i32, double}, ptr %S, i32 0, i32 0
        store i32 %X, ptr %A
        %B = getelementptr {i32, i32, i32, double}, ptr %S, i32 0, i32 3
        store double %D, ptr %B
        %M = addrspacecast ptr addrspace(1) @message0 to ptr
        ... = call i32 @vprintf(ptr %M, ptr %S)
        """,
    )


@pytest.mark.parametrize(("kind", "signed", "line"), [("i8", 1, "sext i8"), ("i8", 0, "zext i8"), ("i1", 1, "zext i1")])
def test_narrow_integers_are_widened(kind: str, signed: int, line: str) -> None:
    assert f"= {line} " in printed(kind, signed=signed).partition("define")[2]


@pytest.mark.parametrize(("prefix", "text"), [("x: ", " x"), (" x", " x"), ("", "")])
def test_a_prefix_ends_in_one_colon(prefix: str, text: str) -> None:
    assert messages(printed("i32", prefix)) == [f"pid (%u, %u, %u) idx (){text}: %i\n"]


def test_a_message_without_values_is_its_prefix() -> None:
    text = module('"tt.print"() <{is_signed = array<i32>, prefix = "here"}> : () -> ()')
    assert messages(text) == ["pid (%u, %u, %u) here\n"]


def test_each_element_of_a_tile_is_printed_by_its_owner_with_its_place() -> None:
    copies = LinearLayout.make(
        {"register": [(1,)], "lane": [(2,), (4,), (8,), (16,), (0,)], "warp": [], "block": []}, {"dim0": 32}
    )
    text = lower(
        '"tt.print"(%x, %y) <{is_signed = array<i32: 1, 0>, prefix = "x"}> : (tensor<32xi32, $C>, tensor<32xi32, $C>) -> ()',
        "%x: tensor<32xi32, $C>, %y: tensor<32xi32, $C>",
        {"C": copies},
    )
    in_order(
        text,
        """
        %P = shl i32 ..., 1
        %A = xor i32 %P, 0
        %B = xor i32 %P, 1
        %O = icmp eq i32 ..., 0
        br i1 %O, label %if..., label %endif...
        store i32 %A, ptr ...
        store i32 %x0, ptr ...
        store i32 %B, ptr ...
        store i32 %x1, ptr ...
        """,
    )
    assert count(text, "%A = call i32 @vprintf(...)") == 4


def test_indices_have_as_many_digits_as_the_last_one() -> None:
    text = module(
        """
        %x = tt.make_range {end = 1024 : i32, start = 0 : i32} : tensor<1024xi32, $W>
        "tt.print"(%x) <{is_signed = array<i32: 1>, prefix = "x"}> : (tensor<1024xi32, $W>) -> ()
        """,
        layouts={"W": spread((1024,), 4, (0,), Threads(1, 32))},
    )
    assert messages(text) == ["pid (%u, %u, %u) idx (%4u) x: %i\n"]


def test_an_assertion_stops_where_one_of_a_thread_s_elements_fails() -> None:
    text = lower('"tt.assert"(%x) <{message = "positive"}> : (tensor<64xi1, $L>) -> ()', "%x: tensor<64xi1, $L>", L)
    in_order(
        text,
        """
        %A = and i1 %x0, %x1
        %F = xor i1 %A, true
        %M = addrspacecast ptr addrspace(1) @message0 to ptr
        br i1 %F, label %if..., label %endif...
        call void @__assertfail(ptr %M, ptr ..., i32 ..., ptr ..., i64 1)
        """,
    )
