"""How tiles lie in scratch memory: strides, padding and bytes of buffers and of operands of matrix products."""

from __future__ import annotations

import pytest

from kernelpack.backends.cpu.plan.buffers import Buffer, InPlace, OperandBuffer, moves_unit_axes, tile_name
from kernelpack.ir.core import Operation
from kernelpack.ir.types import BF16, F32, I1, I32, Type
from tests.ir.examples import function, parse


@pytest.mark.parametrize(
    ("shape", "inner", "strides"),
    [
        ((8,), 0, (1,)),
        ((4, 8), 1, (8, 1)),
        ((4, 8), 0, (1, 4)),
        ((2, 4, 8), 2, (32, 8, 1)),
        ((2, 4, 8), 1, (32, 1, 4)),
        ((2, 4, 8), 0, (1, 16, 2)),
    ],
)
def test_neighbours_along_the_inner_axis_lie_side_by_side(shape: tuple[int, ...], inner: int, strides: tuple[int, ...]) -> None:
    assert Buffer("a", shape, inner, F32).strides == strides


@pytest.mark.parametrize(("kind", "size"), [(F32, 128), (BF16, 64), (I1, 32)])
def test_booleans_take_a_byte(kind: Type, size: int) -> None:
    assert Buffer("a", (4, 8), 1, kind).bytes == size


def test_a_buffer_prints_its_extents_and_lanes() -> None:
    assert str(Buffer("a", (4, 8), 0, F32)) == "a: 4x8xf32, lanes 0"


@pytest.mark.parametrize(
    ("k_axis", "k_inner", "pack", "panel", "inner", "other", "row", "plane", "text"),
    [
        (1, True, 1, 0, 1, 0, 32, 16 * 32, "a: 16x32xf32, k inner"),
        (1, False, 1, 0, 0, 0, 16, 16 * 32, "a: 16x32xf32, k outer"),
        (1, False, 1, 8, 0, 0, 8, 16 * 32, "a: 16x32xf32, panels of 8"),
        (0, False, 1, 16, 1, 1, 16, 16 * 32, "a: 16x32xf32, panels of 16"),
        (0, True, 1, 0, 0, 1, 16, 16 * 32, "a: 16x32xf32, k inner"),
    ],
)
def test_operands_lie_in_the_order_of_the_inner_loop(
    k_axis: int, k_inner: bool, pack: int, panel: int, inner: int, other: int, row: int, plane: int, text: str
) -> None:
    operand = OperandBuffer("a", (16, 32), k_axis, F32, pack, k_inner, panel)
    assert (operand.inner_axis, operand.other_axis) == (inner, other)
    assert (operand.row_units, operand.plane_units) == (row, plane)
    assert str(operand) == text


def test_pairs_of_bfloat16_are_units_of_four_bytes() -> None:
    operand = OperandBuffer("a", (2, 16, 32), 2, BF16, 2, k_inner=True)
    assert (operand.unit_bytes, operand.k_units, operand.row_units) == (4, 16, 16)
    assert operand.bytes == 2 * 16 * 32 * 2
    assert str(operand) == "a: 2x16x32xbf16, k inner, pairs"


@pytest.mark.parametrize(("depth", "row"), [(128, 128), (256, 256 + 16), (512, 512 + 16), (64, 64)])
def test_rows_that_would_share_cache_sets_are_a_line_longer(depth: int, row: int) -> None:
    """256 floats are 1 KB."""
    operand = OperandBuffer("a", (4, depth), 1, F32, 1, k_inner=True)
    assert operand.row_units == row
    assert operand.bytes == 4 * row * 4


def test_products_share_a_buffer_of_one_layout() -> None:
    one = OperandBuffer("a", (16, 32), 1, F32, 1, panel=8)
    assert one.layout == OperandBuffer("b", (16, 32), 1, F32, 1, panel=8).layout
    others = [
        OperandBuffer("a", (16, 32), 0, F32, 1, panel=8),
        OperandBuffer("a", (16, 32), 1, BF16, 1, panel=8),
        OperandBuffer("a", (16, 32), 1, F32, 2, panel=8),
        OperandBuffer("a", (16, 32), 1, F32, 1, k_inner=True),
        OperandBuffer("a", (16, 32), 1, F32, 1, panel=16),
    ]
    assert len({one.layout, *(other.layout for other in others)}) == 6


def test_memory_of_an_operand_holds_the_tile_whose_axes_a_reshape_merges_into_k() -> None:
    operand = OperandBuffer("b", (64, 128), 0, BF16, 2, panel=32)
    cut = operand.cut((2, 8, 4, 128))
    assert cut is not None
    assert (cut.whole, cut.k_axis, cut.other_axis) == (operand, 2, 3)
    assert (cut.row_units, cut.plane_units, cut.panel_units) == (32, 2 * 32, operand.panel_units)
    assert operand.panel_units == 32 * 32


@pytest.mark.parametrize(
    ("operand", "shape"),
    [
        (OperandBuffer("b", (64, 128), 0, BF16, 2, k_inner=True), (2, 8, 4, 128)),
        (OperandBuffer("a", (64, 128), 1, F32, 1), (64, 2, 64)),
        (OperandBuffer("a", (64, 128), 1, F32, 1), (2, 32, 128)),
        (OperandBuffer("b", (64, 128), 0, F32, 1), (64, 2, 64)),
        (OperandBuffer("b", (64, 128), 0, BF16, 2), (64, 1, 128)),
        (OperandBuffer("b", (2, 64, 128), 1, F32, 1), (2, 2, 32, 128)),
        (OperandBuffer("b", (64, 128), 0, F32, 1), (64 * 128,)),
    ],
)
def test_it_holds_no_other_tile(operand: OperandBuffer, shape: tuple[int, ...]) -> None:
    """Where k is inner or the columns are cut, one unit has elements of one row, the product is batched, or the tile has one axis."""
    assert operand.cut(shape) is None


def operations(body: str, arguments: str) -> dict[str, Operation]:
    return {op.results[0].name: op for op in parse(function(body, arguments)).walk() if op.results}


def test_an_operand_in_place_knows_its_other_axis() -> None:
    ops = operations("%v = tt.load %p : tensor<2x4x8x!tt.ptr<f32>>", "%p: tensor<2x4x8x!tt.ptr<f32>>")
    load = ops["v"]
    assert InPlace(load.result, load, (0, 1, 2), 2, k_inner=True).other_axis == 1
    assert InPlace(load.result, load, (0, 1, 2), 1, k_inner=True).other_axis == 2


@pytest.mark.parametrize(
    ("source", "result", "moves"),
    [("32", "1x32", True), ("1x8x1x4", "8x4", True), ("4x8", "8x4", False), ("32", "4x8", False), ("2x1x4", "1x4x2", False)],
)
def test_only_reshapes_that_move_axes_of_one_need_no_buffer(source: str, result: str, moves: bool) -> None:
    ops = operations(f"%b = tt.reshape %a : tensor<{source}xi32> -> tensor<{result}xi32>", f"%a: tensor<{source}xi32>")
    assert moves_unit_axes(ops["b"]) is moves


def test_a_buffer_is_called_as_its_tile_or_as_what_makes_it() -> None:
    module = parse(function("%sum = arith.addi %a, %a : i32\n%0 = arith.addi %a, %a : i32", "%a: i32"))
    first, second = (op.result for op in module.walk() if op.name == "arith.addi")
    assert [tile_name(value) for value in (first, second)] == ["sum", "addi"]
    assert tile_name(parse(function("", "%a: i32")).body.operations[0].body.arguments[0]) == "a"
    assert Buffer("a", (2,), 0, I32).bytes == 8
