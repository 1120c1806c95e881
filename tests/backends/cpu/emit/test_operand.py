"""Operands of products are written where the inner loop reads them: rows of k, panels, pairs, planes of a batch."""

from __future__ import annotations

from kernelpack.backends.cpu.emit.evaluate import Evaluator
from kernelpack.backends.cpu.emit.operand import end_along_k, operand_address, write_operand
from kernelpack.backends.cpu.emit.places import FIRST, Place
from kernelpack.backends.cpu.facts.affine import Bound
from kernelpack.backends.cpu.plan.buffers import OperandBuffer
from kernelpack.backends.cpu.plan.tile_program import TileProgram
from kernelpack.ir.core import Block, Operation
from kernelpack.ir.types import BF16, F32, I8, I32
from kernelpack.llvm.text import Val
from tests.backends.cpu.emit.llir import lowering, written
from tests.backends.fragments import count, in_order


def evaluator(into: OperandBuffer, width: int) -> Evaluator:
    """An evaluator whose only storage is a buffer at %base."""
    lo = lowering()
    program = TileProgram(Operation("builtin.module", (), ()), [], [into], {})
    return Evaluator(program, lo, {}, {id(into): Val("ptr", "%base")}, lo.em.lines, width)


def address(into: OperandBuffer, *places: Place) -> str:
    ev = evaluator(into, 8)
    operand_address(ev, into, places)
    return written(ev.em)


ROW, COLUMN = Place("%r", 0, 0), Place("%c", 0, 0)


def test_rows_of_k_lie_one_after_the_other() -> None:
    in_order(
        address(OperandBuffer("a", (4, 32), 1, F32, 1, k_inner=True), ROW, COLUMN),
        """
        %A = mul nsw i64 %r, 128
        %B = mul nsw i64 %c, 4
        %C = add nsw i64 %A, %B
        ... = getelementptr i8, ptr %base, i64 %C
        """,
    )


def test_rows_of_a_kilobyte_have_a_cache_line_between_them() -> None:
    text = address(OperandBuffer("a", (4, 256), 1, F32, 1, k_inner=True), ROW, FIRST)
    in_order(text, "%A = mul nsw i64 %r, 1088")


def test_a_panel_holds_all_of_k_for_its_columns() -> None:
    in_order(
        address(OperandBuffer("b", (16, 64), 0, F32, 1, panel=16), ROW, COLUMN),
        """
        %A = mul nsw i64 %r, 64
        %P = lshr i64 %c, 4
        %W = and i64 %c, 15
        %Q = mul nsw i64 %P, 1024
        %S = add nsw i64 %A, %Q
        %V = mul nsw i64 %W, 4
        %T = add nsw i64 %S, %V
        ... = getelementptr i8, ptr %base, i64 %T
        """,
    )


def test_one_panel_needs_no_division() -> None:
    assert "lshr" not in address(OperandBuffer("b", (16, 16), 0, F32, 1, panel=16), ROW, COLUMN)


def test_pairs_share_a_unit() -> None:
    in_order(
        address(OperandBuffer("b", (16, 32), 0, BF16, 2, panel=32), ROW, COLUMN),
        """
        %U = lshr i64 %r, 1
        %A = mul nsw i64 %U, 128
        %B = mul nsw i64 %c, 4
        """,
    )
    in_order(
        address(OperandBuffer("a", (4, 32), 1, BF16, 2, k_inner=True), ROW, COLUMN),
        "%A = mul nsw i64 %r, 64\n%B = mul nsw i64 %c, 2",
    )


def test_constant_places_are_computed_here() -> None:
    buffer = OperandBuffer("b", (16, 64), 0, F32, 1, panel=16)
    # row 3, column 21: second panel, sixth column
    text = address(buffer, Place(None, 3), Place(None, 21))
    assert text.strip() == f"%v1 = getelementptr i8, ptr %base, i64 {3 * 64 + 1024 + 5 * 4}"
    assert address(buffer, FIRST, FIRST) == ""


def test_matrices_of_a_batch_are_planes() -> None:
    text = address(OperandBuffer("a", (3, 4, 32), 2, F32, 1, k_inner=True), Place("%b", 0, 0), FIRST, FIRST)
    in_order(text, "%A = mul nsw i64 %b, 512\n... = getelementptr i8, ptr %base, i64 %A")


def write(into: OperandBuffer, kind: object, lane: int, points: list[tuple[Place, ...]], vector: str) -> str:
    ev = evaluator(into, 8)
    values = [Val(vector, f"%x{number}") for number in range(len(points))]
    write_operand(ev, into, kind, lane, points, values)
    return written(ev.em)


def lanes(*offsets: int) -> tuple[Place, ...]:
    """A point along axes 0 and 1, with lanes along axis 1."""
    return Place(None, offsets[0]), Place(None, offsets[1], 0, lanes=True)


def test_vectors_along_the_inner_axis_are_stored_as_they_are() -> None:
    panel = OperandBuffer("b", (16, 16), 0, F32, 1, panel=16)
    text = write(panel, F32, 1, [lanes(2, 0), lanes(2, 8)], "<8 x float>")
    in_order(text, "store <8 x float> %x0, ptr %A, align 4\nstore <8 x float> %x1, ptr %B, align 4")
    assert "i64 128" in text
    assert "i64 160" in text


def test_elements_become_those_of_the_product() -> None:
    wide = OperandBuffer("b", (16, 16), 0, I32, 1, panel=16)
    in_order(
        write(wide, I8, 1, [lanes(0, 0)], "<8 x i8>"),
        "%A = sext <8 x i8> %x0 to <8 x i32>\nstore <8 x i32> %A, ptr %base, align 4",
    )
    floats = OperandBuffer("b", (16, 16), 0, F32, 1, panel=16)
    text = write(floats, BF16, 1, [lanes(0, 0)], "<8 x i16>")
    in_order(
        text, "%A = zext <8 x i16> %x0 to <8 x i32>\n%B = shl ...\n%C = bitcast ...\nstore <8 x float> %C, ptr %base, align 4"
    )


def test_neighbours_along_k_become_pairs() -> None:
    pairs = OperandBuffer("b", (16, 16), 0, BF16, 2, panel=16)
    text = write(pairs, BF16, 1, [lanes(0, 0), lanes(1, 0)], "<8 x i16>")
    in_order(
        text,
        """
        %L = zext <8 x i16> %x0 to <8 x i32>
        %H = zext <8 x i16> %x1 to <8 x i32>
        %S = shl <8 x i32> %H, splat (i32 16)
        %U = or <8 x i32> %L, %S
        store <8 x i32> %U, ptr %base, align 4
        """,
    )
    assert count(text, "store ...") == 1


def test_rows_against_the_lanes_are_turned() -> None:
    panel = OperandBuffer("b", (16, 16), 1, F32, 1, panel=16)  # k is axis 1, which is in the lanes
    points = [lanes(row, 0) for row in range(4)]
    text = write(panel, F32, 1, points, "<4 x float>")
    assert count(text, "%A = shufflevector ...") == 8
    stores = [line for line in text.splitlines() if "store" in line]
    assert len(stores) == 4
    assert [f"i64 {64 * k}" in text for k in range(1, 4)] == [True] * 3  # a row of four columns for each k


def test_pairs_are_turned_as_units() -> None:
    panel = OperandBuffer("b", (16, 16), 1, BF16, 2, panel=16)
    points = [lanes(row, 0) for row in range(2)]
    text = write(panel, BF16, 1, points, "<4 x i16>")
    in_order(
        text,
        """
        %A = bitcast <4 x i16> %x0 to <2 x i32>
        %B = bitcast <4 x i16> %x1 to <2 x i32>
        %C = shufflevector <2 x i32> %A, <2 x i32> %B, <2 x i32> <i32 0, i32 2>
        store <2 x i32> %C, ptr %base, align 4
        """,
    )


def test_products_end_at_whole_steps_of_units() -> None:
    length = Block([I32]).arguments[0]
    buffer = OperandBuffer("a", (4, 512), 1, BF16, 2, k_inner=True, depth=Bound(((length, -1),), -1))
    ev = evaluator(buffer, 8)
    ev.scalars[length] = Val("i32", "%n")
    end_along_k(ev, buffer, 64)
    in_order(
        written(ev.em),
        """
        %W = sext i32 %n to i64
        %S = mul i64 %W, -1
        %E = sub i64 127, %S
        %D = sdiv i64 %E, 128
        %M = call i64 @llvm.smax.i64(i64 %D, i64 1)
        %L = call i64 @llvm.smin.i64(i64 %M, i64 4)
        ... = mul i64 %L, 64
        """,
    )
    assert end_along_k(ev, OperandBuffer("a", (4, 512), 1, BF16, 2, k_inner=True), 64) is None
