"""What a layout conversion costs, in the unit of memory_layouts.global_cost: passes through the load/store unit of a processor."""

from __future__ import annotations

import functools

from kernelpack.backends.gpu.facts.memory_layouts import memory_bits
from kernelpack.ir.types import TensorType
from kernelpack.layout.convert import Move, access_cost, access_shared, best_shared, plan_conversion, read_cost
from kernelpack.layout.encoding import layout_of
from kernelpack.layout.linear import LinearLayout

BARRIER = 20
"""Two barriers and the wait for the data between them, roughly."""


@functools.lru_cache(maxsize=4096)
def layout_cost(before: LinearLayout, after: LinearLayout, bits: int) -> int:
    """Returns the cost of converting a tile of elements of `bits` bits."""
    move = plan_conversion(before, after).move
    if move in (Move.NONE, Move.REGISTERS):
        return 0
    warps = after.in_size("warp")
    if move is Move.SHUFFLE:
        return after.in_size("register") * warps * max(1, bits // 32)
    memory = best_shared((before,), (after,), bits)
    written = access_cost(access_shared(before, memory, bits), bits)
    return BARRIER + (written + read_cost(after, memory, bits)) * warps


def conversion_cost(kind: TensorType, after: LinearLayout) -> int:
    return layout_cost(layout_of(kind), after, memory_bits(kind))


def is_better_read(own: LinearLayout, before: LinearLayout, wanted: LinearLayout, memory: LinearLayout, bits: int) -> bool:
    """Whether a tile in the buffer `memory` is read in the layout `wanted` at no more cost than in its own, from the buffer `before`, and then
    converted."""
    more = read_cost(wanted, memory, bits) - read_cost(own, before, bits)
    return more * wanted.in_size("warp") <= layout_cost(own, wanted, bits)
