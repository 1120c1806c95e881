"""Which products fit AMX's tiles, and so which level a kernel is compiled for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelpack.backends.cpu.facts.features import Level, level_of, target_for
from kernelpack.ir.core import Operation
from kernelpack.ir.types import BF16, I8, element_of, shape_of
from kernelpack.ir.views import factors
from kernelpack.target import Target

EDGE = 16
"""A tile has at most so many rows, and so many units of 32 bits a row."""

PACKS = {BF16: 2, I8: 4}
"""How many neighbours along k share a unit, by the type of the operands."""

_BLOCK = 4
"""How many tiles hold results at a time; another two hold each operand."""


@dataclass(frozen=True)
class TileGrid:
    """How a product is cut: tiles of `height` x `width` results, `tall` x `wide` of them at a time, and `deep` units of k a step."""

    height: int
    width: int
    deep: int
    tall: int
    wide: int

    @staticmethod
    def of(rows: int, lanes: int, units: int) -> TileGrid:
        """Returns the grid for a product with so many rows and lanes, and units of k: 2 x 2 tiles, or four in a row where one side has but
        one."""
        height, width = min(rows, EDGE), min(lanes, EDGE)
        down, along = rows // height, lanes // width
        tall = min(down, _BLOCK // min(along, 2))
        return TileGrid(height, width, min(units, EDGE), tall, min(along, _BLOCK // min(down, 2)))


def fits_tiles(op: Operation) -> bool:
    """Whether an operation is a product that tiles can hold: of bfloat16 or int8, with as many elements along k as share a unit."""
    if op.name != "tt.dot":
        return False
    a, b = factors(op)
    kind = element_of(a.type)
    extents = (*shape_of(op.result.type)[-2:], shape_of(a.type)[-1])
    return (
        kind == element_of(b.type)
        and kind in PACKS
        and shape_of(a.type)[-1] >= PACKS[kind]
        and all(math.log2(extent).is_integer() for extent in extents)
    )


def level_of_kernel(target: Target, code: Operation) -> Level:
    """Returns the level that a kernel is compiled for."""
    return level_of(target_of_kernel(target, code))


def target_of_kernel(target: Target, code: Operation) -> Target:
    """Returns the target whose level a kernel is compiled for."""
    kinds = {value.type for op in code.walk() for value in op.results}
    bf16 = any(element_of(kind) == BF16 for kind in kinds)
    products = [op for op in code.walk() if op.name == "tt.dot"]
    int8 = any(element_of(factors(op)[0].type) == I8 for op in products) or any(
        op.name == "cpu.dot_bytes" for op in code.walk()
    )
    return target_for(target, bf16=bf16, tiles=any(map(fits_tiles, products)), int8=int8)
