"""What it costs to change a tile's layout: nothing within a thread, shuffles within a warp, two barriers through shared memory."""

from __future__ import annotations

from kernelpack.backends.gpu.facts.conversion_cost import BARRIER, conversion_cost, layout_cost
from kernelpack.ir.types import F32, I1, TensorType
from kernelpack.layout.convert import Move, plan_conversion
from kernelpack.layout.encoding import LinearEncoding
from kernelpack.layout.families import Threads, spread
from kernelpack.layout.linear import LinearLayout

ROWS, COLUMNS = spread((32, 32), 1, (1, 0), Threads(1, 32)), spread((32, 32), 1, (0, 1), Threads(1, 32))


def test_what_stays_in_a_thread_is_free() -> None:
    turned = ROWS.with_bases("register", tuple(reversed(ROWS.bases("register"))))
    assert plan_conversion(ROWS, turned).move is Move.REGISTERS
    assert layout_cost(ROWS, ROWS, 32) == layout_cost(ROWS, turned, 32) == 0


def test_a_shuffle_costs_one_instruction_for_each_register_of_each_warp() -> None:
    def layout(warps: int) -> LinearLayout:
        return spread((64 * warps,), 2, (0,), Threads(warps, 32))

    def turned(warps: int) -> LinearLayout:
        return layout(warps).with_bases("lane", tuple(reversed(layout(warps).bases("lane"))))

    assert plan_conversion(layout(4), turned(4)).move is Move.SHUFFLE
    assert [layout_cost(layout(warps), turned(warps), 32) for warps in (1, 4)] == [2, 8]
    # two for what has 64 bits, and not less than one for what is narrow
    assert [layout_cost(layout(4), turned(4), bits) for bits in (8, 16, 32, 64)] == [8, 8, 8, 16]


def test_a_way_through_shared_memory_costs_more_than_its_barriers() -> None:
    move = plan_conversion(ROWS, COLUMNS).move
    assert move not in (Move.NONE, Move.REGISTERS, Move.SHUFFLE)
    assert layout_cost(ROWS, COLUMNS, 32) == BARRIER + 32 + 32  # each of 32 registers is written, and read, by the whole warp
    assert layout_cost(ROWS, COLUMNS, 64) > layout_cost(ROWS, COLUMNS, 32)
    four = [spread((64, 64), 1, order, Threads(4, 32)) for order in ((1, 0), (0, 1))]
    assert layout_cost(four[0], four[1], 32) == BARRIER + 4 * (32 + 32)


def test_a_tile_of_booleans_is_moved_in_bytes() -> None:
    kind = TensorType((32, 32), I1, LinearEncoding(ROWS))
    assert conversion_cost(kind, COLUMNS) == layout_cost(ROWS, COLUMNS, 8)
    assert conversion_cost(TensorType((32, 32), F32, LinearEncoding(ROWS)), COLUMNS) == layout_cost(ROWS, COLUMNS, 32)
