"""remove_conversions: tiles are computed in the layout that their users need."""

from __future__ import annotations

from kernelpack.backends.gpu.passes.remove_conversions import remove_conversions
from kernelpack.ir.core import entry_function
from kernelpack.layout.families import Threads, spread
from tests.backends.gpu.ttgir import check, parse

ROWS = spread((16, 16), 1, (1, 0), Threads(1, 32))


COLUMNS = spread((16, 16), 1, (0, 1), Threads(1, 32))


def test_a_store_takes_the_layout_at_hand_where_that_is_cheaper() -> None:
    arguments = "%p: !tt.ptr<i64>, %x: tensor<16x16xi64, $there>"
    before = """
        %s = tt.splat %p : !tt.ptr<i64> -> tensor<16x16x!tt.ptr<i64>, $here>
        %y = ttg.convert_layout %x : tensor<16x16xi64, $there> -> tensor<16x16xi64, $here>
        tt.store %s, %y : tensor<16x16x!tt.ptr<i64>, $here>
    """
    after = """
        %s = tt.splat %p : !tt.ptr<i64> -> tensor<16x16x!tt.ptr<i64>, $here>
        %s_0 = tt.splat %p : !tt.ptr<i64> -> tensor<16x16x!tt.ptr<i64>, $there>
        %y = ttg.convert_layout %x : tensor<16x16xi64, $there> -> tensor<16x16xi64, $here>
        tt.store %s_0, %x : tensor<16x16x!tt.ptr<i64>, $there>
    """
    there = ROWS.with_bases("lane", ROWS.bases("lane")[::-1])
    check(remove_conversions, arguments, before, after, {"here": ROWS, "there": there})
    stays = {"here": ROWS, "there": COLUMNS}  # rows of 16 elements, column by column: a conversion costs less
    check(remove_conversions, arguments, before, before, stays)


def test_what_one_user_needs_is_computed_where_it_is_needed() -> None:
    arguments = "%n: f32, %x: tensor<16x16xf32, $there>"
    before = """
        %s = tt.splat %n : f32 -> tensor<16x16xf32, $here>
        %y = math.absf %s : tensor<16x16xf32, $here>
        %z = ttg.convert_layout %y : tensor<16x16xf32, $here> -> tensor<16x16xf32, $there>
        %w = arith.addf %z, %x : tensor<16x16xf32, $there>
    """
    module = parse(before, arguments, {"here": ROWS, "there": COLUMNS})
    remove_conversions(entry_function(module))
    add = next(op for op in module.walk() if op.name == "arith.addf")
    assert add.operands[0].defining_op is not None
    assert add.operands[0].defining_op.name == "math.absf"


def test_conversions_in_a_row_are_one() -> None:
    """Where the first one's result is needed, too, and makes every thread hold the whole tile."""
    short, four = spread((64,), 2, (0,), Threads(1, 32)), spread((64,), 4, (0,), Threads(1, 32))
    whole = short.with_bases("register", [(1 << bit,) for bit in range(6)]).with_bases("lane", [(0,)] * 5)
    check(
        remove_conversions,
        "%x: tensor<64xbf16, $short>",
        """
        %y = ttg.convert_layout %x : tensor<64xbf16, $short> -> tensor<64xbf16, $whole>
        %z = ttg.convert_layout %y : tensor<64xbf16, $whole> -> tensor<64xbf16, $four>
        %b = ttg.convert_layout %z : tensor<64xbf16, $four> -> tensor<64xbf16, $short>
        %s = arith.addf %x, %b : tensor<64xbf16, $short>
        %t = arith.addf %y, %y : tensor<64xbf16, $whole>
        """,
        """
        %y = ttg.convert_layout %x : tensor<64xbf16, $short> -> tensor<64xbf16, $whole>
        %z = ttg.convert_layout %x : tensor<64xbf16, $short> -> tensor<64xbf16, $four>
        %s = arith.addf %x, %x : tensor<64xbf16, $short>
        %t = arith.addf %y, %y : tensor<64xbf16, $whole>
        """,
        {"short": short, "whole": whole, "four": four},
    )
