"""A value in another layout: computed again from scalars where it can be, converted where it cannot, and once for all who ask."""

from __future__ import annotations

from collections.abc import Callable

from kernelpack.backends.gpu.passes.materialize import Materializer, free_values, operand_requirement
from kernelpack.ir.core import Operation, Value, entry_function
from kernelpack.layout.families import Threads, spread
from tests.backends.gpu.ttgir import check, parse

A, B = spread((64,), 1, (0,), Threads(1, 32)), spread((64,), 2, (0,), Threads(1, 32))
ROWS, COLUMNS = spread((8, 64), 1, (1, 0), Threads(1, 32)), spread((8, 64), 1, (0, 1), Threads(1, 32))
LAYOUTS = {"A": A, "B": B}
TILE = "tensor<64xi32, $A>"


def value(function: Operation, name: str) -> Value:
    values = [*function.body.arguments, *(result for op in function.walk() for result in op.results)]
    return next(value for value in values if value.name == name)


def as_b(name: str) -> Callable[[Operation], None]:
    """Returns what asks twice for a value of a function in layout B, and gets the same."""

    def run(function: Operation) -> None:
        materialize = Materializer(free_values(function))
        found = value(function, name)
        made = materialize(found, B)
        assert materialize(found, B) is made
        assert materialize(made, B) is made

    return run


def test_indices_are_computed_again() -> None:
    check(
        as_b("c"),
        "%n: i32",
        f"""
        %r = tt.make_range {{end = 64 : i32, start = 0 : i32}} : {TILE}
        %s = tt.splat %n : i32 -> {TILE}
        %c = arith.addi %r, %s : {TILE}
        """,
        f"""
        %r = tt.make_range {{end = 64 : i32, start = 0 : i32}} : {TILE}
        %r_0 = tt.make_range {{end = 64 : i32, start = 0 : i32}} : tensor<64xi32, $B>
        %s = tt.splat %n : i32 -> {TILE}
        %s_0 = tt.splat %n : i32 -> tensor<64xi32, $B>
        %c = arith.addi %r, %s : {TILE}
        %c_0 = arith.addi %r_0, %s_0 : tensor<64xi32, $B>
        """,
        LAYOUTS,
    )


def test_what_is_loaded_is_converted_after_its_definition() -> None:
    load = "%v = tt.load %p : tensor<64x!tt.ptr<i32>, $A>"
    pointers = "%p: tensor<64x!tt.ptr<i32>, $A>"
    after = f"{load}\n%0 = ttg.convert_layout %v : {TILE} -> tensor<64xi32, $B>\ntt.store %p, %v : tensor<64x!tt.ptr<i32>, $A>"
    check(as_b("v"), pointers, f"{load}\ntt.store %p, %v : tensor<64x!tt.ptr<i32>, $A>", after, LAYOUTS)


def test_an_argument_is_converted_where_its_block_begins() -> None:
    negated = f"%y = arith.addi %x, %x : {TILE}"
    check(as_b("x"), f"%x: {TILE}", negated, f"%0 = ttg.convert_layout %x : {TILE} -> tensor<64xi32, $B>\n{negated}", LAYOUTS)


def test_what_mixes_indices_and_data_is_converted() -> None:
    body = f"%r = tt.make_range {{end = 64 : i32, start = 0 : i32}} : {TILE}\n%c = arith.addi %r, %x : {TILE}"
    check(as_b("c"), f"%x: {TILE}", body, f"{body}\n%0 = ttg.convert_layout %c : {TILE} -> tensor<64xi32, $B>", LAYOUTS)


FREE = """
%r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32, $A>
%row = tt.expand_dims %r {axis = 0 : i32} : tensor<64xi32, $A> -> tensor<1x64xi32, $R>
%all = tt.broadcast %row : tensor<1x64xi32, $R> -> tensor<8x64xi32, $W>
%three = tt.splat %n : i32 -> tensor<8x64xi32, $W>
%m = arith.muli %all, %three : tensor<8x64xi32, $W>
%sum = arith.addi %m, %x : tensor<8x64xi32, $W>
%two = arith.addi %n, %n : i32
%q = arith.divsi %m, %three : tensor<8x64xi32, $W>
"""


def test_indices_and_scalars_are_free_and_what_follows_from_them_alone() -> None:
    layouts = {"A": A, "R": spread((1, 64), 1, (1, 0), Threads(1, 32)), "W": ROWS}
    function = entry_function(parse(FREE, "%x: tensor<8x64xi32, $W>, %n: i32", layouts))
    assert {value.name for value in free_values(function)} == {"r", "row", "all", "three", "m", "q"}


def test_operands_of_arithmetic_have_the_layout_of_the_result_and_a_transposed_tile_the_transposed_one() -> None:
    text = "%y = arith.addi %x, %x : tensor<8x64xi32, $R>\n%t = tt.trans %x {order = [1, 0]} : tensor<8x64xi32, $R> -> tensor<64x8xi32, $T>"
    layouts = {"R": ROWS, "T": spread((64, 8), 1, (0, 1), Threads(1, 32))}
    add, transpose, _ = entry_function(parse(text, "%x: tensor<8x64xi32, $R>", layouts)).body.operations
    assert operand_requirement(add, COLUMNS) == COLUMNS
    assert operand_requirement(transpose, spread((64, 8), 1, (1, 0), Threads(1, 32))) == COLUMNS
