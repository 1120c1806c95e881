"""Printing and assertions: formats of values, and what a failed assertion leaves for the launch."""

from __future__ import annotations

import re

import pytest

from kernelpack.backends.cpu.emit.messages import as_printed, emit_assert, emit_print
from kernelpack.ir.core import Operation
from kernelpack.llvm.text import Emitter, Val
from tests.backends.cpu.emit.llir import lowering, written
from tests.backends.fragments import in_order
from tests.ir.examples import function, parse

PROGRAM = [Val("i32", "%px"), Val("i32", "%py"), Val("i32", "%pz")]


def message(kinds: str, prefix: str = "x: ", signed: str = "1", more: str = "") -> Operation:
    names = [f"%a{number}" for number in range(len(kinds.split(", ")))] if kinds else []
    arguments = ", ".join(f"{name}: {kind}" for name, kind in zip(names, kinds.split(", "), strict=False))
    text = f'"tt.print"({", ".join(names)}) <{{is_signed = array<i32: {signed}>, prefix = "{prefix}"{more}}}> : ({kinds}) -> ()'
    return next(op for op in parse(function(text, arguments)).walk() if op.name == "tt.print")


def formats(em: Emitter) -> list[str]:
    """The texts that a module would have, as printf takes them."""
    found = (re.search(r'c"(.*)\\00"', line) for line in sorted(em.declarations))
    return [text[1].replace("\\0A", "\n") for text in found if text]


@pytest.mark.parametrize(
    ("kind", "signed", "more", "conversion", "passed"),
    [
        ("i32", "1", "", "%lld", "sext"),
        ("i32", "0", "", "%llu", "zext"),
        ("i16", "1", ", hex = true", "0x%04llx", "sext"),
        ("i1", "0", "", "%llu", "zext"),
        ("!tt.ptr<f32>", "0", "", "%p", None),
    ],
)
def test_values_are_promoted_as_c_has_it(kind: str, signed: str, more: str, conversion: str, passed: str | None) -> None:
    em = Emitter()
    op = message(kind, signed=signed, more=more)
    value = Val("ptr" if "ptr" in kind else kind, "%v")
    emit_print(em, op, [value], [], [], PROGRAM)
    assert formats(em) == [f"pid (%u, %u, %u) idx () x: {conversion}\n"]
    promoted = f"%A = {passed} {value} to i64\n" if passed else ""
    given = "i64 %A" if passed else "ptr %v"
    in_order(
        written(em),
        f"{promoted}%W = call i32 (i32, ptr, ...) @dprintf(i32 1, ptr @.text..., i32 %px, i32 %py, i32 %pz, {given})",
    )


def test_floats_are_printed_as_double() -> None:
    lo = lowering()
    op = message("f32")
    value = as_printed(lo, Val("float", "%v"), op.operands[0])
    emit_print(lo.em, op, [value], [], [], PROGRAM)
    assert formats(lo.em) == ["pid (%u, %u, %u) idx () x: %f\n"]
    in_order(written(lo.em), "%D = fpext float %v to double\n%W = call ... @dprintf(..., double %D)")
    whole = message("i32")
    assert as_printed(lo, Val("i32", "%v"), whole.operands[0]) == Val("i32", "%v")


def test_several_operands_say_which_they_are_and_where_in_the_tile() -> None:
    em = Emitter()
    op = message("tensor<4x128xi32>, tensor<4x128xi32>", signed="1, 0", prefix="100% ")
    emit_print(em, op, [Val("i32", "%a"), Val("i32", "%b")], [Val("i32", "%i"), Val("i32", "%j")], (4, 128), PROGRAM)
    assert formats(em) == [
        "pid (%u, %u, %u) idx (%1d, %3d) 100%% (operand 0) %lld\n",
        "pid (%u, %u, %u) idx (%1d, %3d) 100%% (operand 1) %llu\n",
    ]
    assert len([line for line in em.lines if "i32 %i, i32 %j" in line]) == 2


def test_a_message_without_values_prints_its_prefix() -> None:
    em = Emitter()
    text = '"tt.print"() <{is_signed = array<i32>, prefix = "here"}> : () -> ()'
    (op,) = (op for op in parse(function(text)).walk() if op.name == "tt.print")
    emit_print(em, op, [], [], [], PROGRAM)
    assert formats(em) == ["pid (%u, %u, %u) idx () here\n"]
    assert len(em.lines) == 1


def test_a_failed_assertion_leaves_its_text_in_the_launch_and_ends_the_program() -> None:
    em = Emitter()
    text = '"tt.assert"(%c) <{message = "c is 1"}> : (i1) -> ()'
    (op,) = (op for op in parse(function(text, "%c: i1")).walk() if op.name == "tt.assert")
    emit_assert(em, op, Val("i1", "%c"))
    in_order(
        written(em),
        """
        br i1 %c, label %holds..., label %failed...
        failed...:
        %A = getelementptr i8, ptr %launch, i64 24
        store atomic ptr @.text..., ptr %A monotonic, align 8
        ret void
        holds...:
        """,
    )
    assert formats(em) == ["assertion failed: c is 1"]
