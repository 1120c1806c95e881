"""Plans how a matrix product reads its operands: packed, in which order and type, or in place; with k or the result in the lanes."""

from __future__ import annotations

from kernelpack.backends.cpu.facts.affine import strides
from kernelpack.backends.cpu.facts.axes import Axes
from kernelpack.backends.cpu.facts.ends import depth_of
from kernelpack.backends.cpu.facts.features import Level
from kernelpack.backends.cpu.facts.tiles import EDGE, PACKS, TileGrid, fits_tiles
from kernelpack.backends.cpu.plan.buffers import BUFFERED, K_STEP, Evaluated, InPlace, Operand, OperandBuffer, tile_name
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import Effect, effects_of, operand, optional_operand
from kernelpack.ir.types import BF16, F16, F32, I8, I16, I32, Type, bit_width, element_of, is_float, is_int, shape_of
from kernelpack.ir.views import factors

_FEW_LANES = 128
"""Up to so many lanes of a result in tiles, rows are read where they lie. More read each row often enough to pack them: rows that are a
multiple of 8 KB apart share the sets of the second cache, and tiles come out of it at half the speed (measured)."""


_EVALUATED_VECTORS = 4
"""So many vectors of an operand that is not packed are taken at a time at most: as fast as 8, and less is left at the end of a row."""

_FEW_ROWS = 64
"""Up to so many rows, turning their tiles of results costs less than turning b: a tile costs about 100 cycles, an element of b 0.15."""


def plan_operand(dot: Operation, name: str, axes: Axes, level: Level) -> Operand:
    """Returns how a product reads operand "a" or "b"."""
    value = operand(dot, name)
    kind, shape = element_of(value.type), shape_of(value.type)
    rank = len(shape)
    lane_axis = axes.dot_axis(dot)
    rows_in_lanes = lane_axis == rank - 2
    k_axis, other_axis = (rank - 1, rank - 2) if name == "a" else (rank - 2, rank - 1)
    element, pack = _product_element(kind, shape[k_axis], shape_of(dot.result.type)[lane_axis], level)
    along_k = has_k_in_lanes(dot, axes, level)
    depth = depth_of(dot) if shape[k_axis] // pack > K_STEP else None
    panel, biased = 0, False
    if is_in_tiles(dot, axes, level):
        element, pack = kind, PACKS[kind]
        tile_lane = tile_lane_axis(dot, axes)
        k_inner = (tile_lane == rank - 2) != (name == "a")
        direct = k_inner and shape_of(dot.result.type)[tile_lane] <= _FEW_LANES
        if not k_inner:
            grid = tile_grid(dot, tile_lane)
            panel = grid.wide * grid.width
    elif along_k:
        k_inner, direct = True, name == "b" and (bit_width(kind) >= 16 or pack == 4)
    elif rows_in_lanes == (name == "a"):
        lanes = min(level.lanes(bit_width(element) * pack), shape[other_axis])
        rows = shape_of(dot.result.type)[2 * rank - 3 - lane_axis]
        if pack == rows == 1 and _is_computed_once(dot, value, axes, other_axis):
            return Evaluated(value, k_axis, element, min(lanes * _EVALUATED_VECTORS, shape[other_axis]), depth)
        panel = min(lanes * level.vectors, shape[other_axis])
        k_inner, direct = False, False
    else:
        # vpdpbusd multiplies unsigned bytes by signed ones: those that are broadcast become unsigned
        biased = pack == 4 and not level.is_arm
        k_inner, direct = axes.lane_axis(value) == k_axis, (element, pack) == (kind, 1)
    in_place = _read_in_place(dot, name, k_axis) if direct else None
    if in_place is not None and (in_place.k_inner or not (along_k or pack > 1)):
        return in_place
    return OperandBuffer(tile_name(value), shape, k_axis, element, pack, k_inner, panel, biased, depth)


def _is_computed_once(dot: Operation, value: Value, axes: Axes, lane_axis: int) -> bool:
    """Whether an operand is numbers that are computed beside a product, for it alone, with neighbours along an axis in the lanes."""
    op = value.defining_op
    return (
        op is not None
        and op.parent is dot.parent
        and op.name not in BUFFERED
        and len(value.uses) == 1
        and is_float(value.type)
        and axes.lane_axis(value) == lane_axis
    )


def block_along_k(rows: int, level: Level) -> tuple[int, int, int]:
    """Returns how many of `rows` rows, and how many columns, of a product with k in the lanes are computed at a time, and how many
    accumulators each result has."""
    accumulators = 1 << (level.rows * level.vectors).bit_length() - 1
    height = min(rows, accumulators // 4)
    width = accumulators // height if height > 1 else 4
    return height, width, accumulators // (height * width)


def _product_element(kind: Type, depth: int, lanes: int, level: Level) -> tuple[Type, int]:
    """Returns what an operand element becomes for the product's inner loop, and how many share a 32-bit unit.

    `depth` is the extent of k and `lanes` of the result's lane axis; the instructions for pairs and quads take 4, 8 or 16 lanes.
    """
    if kind == BF16 and level.bf16_dot and depth % 2 == 0 and lanes >= 4:
        return BF16, 2
    if kind == I8 and level.int8_pack > 1 and depth % level.int8_pack == 0 and lanes >= 4:
        return (I8 if level.int8_pack == 4 else I16), level.int8_pack
    if kind in (BF16, F16):
        return F32, 1
    return (I32, 1) if is_int(kind) else (kind, 1)


def is_in_tiles(dot: Operation, axes: Axes, level: Level) -> bool:
    """Whether a product takes AMX's tiles. Fewer rows than a tile has are not worth turning b for, where it lies along k."""
    return level.tiles and fits_tiles(dot) and not has_k_in_lanes(dot, axes, level)


def tile_lane_axis(dot: Operation, axes: Axes) -> int:
    """Returns the axis of a result that runs along the rows of its tiles: that of its lanes. Where both operands lie along k one has to be
    turned; it is the one with fewer rows, and tiles are turned back."""
    a, b = factors(dot)
    *batch, rows, columns = shape_of(dot.result.type)
    lane_axis, first = axes.dot_axis(dot), len(batch)
    along_k = [axes.preference(tile)[0] for tile in (a, b)] == [first + 1, first]
    return first if lane_axis == first + 1 and along_k and EDGE <= rows <= min(_FEW_ROWS, columns // 2) else lane_axis


def tile_grid(dot: Operation, lane_axis: int) -> TileGrid:
    """Returns how a product in tiles is cut."""
    a, _ = factors(dot)
    shape = shape_of(dot.result.type)
    return TileGrid.of(
        shape[2 * len(shape) - 3 - lane_axis], shape[lane_axis], shape_of(a.type)[-1] // PACKS[element_of(a.type)]
    )


def has_k_in_lanes(dot: Operation, axes: Axes, level: Level) -> bool:
    """Whether a product has k in the lanes: both operands lie so, and the rows are too few to be worth turning b for.

    An element of b costs as much to turn as the lanes of 8 elements of the result cost to add up (counted on AVX-512).
    """
    a, b = factors(dot)
    *batch, rows, depth = shape_of(a.type)
    columns = shape_of(dot.result.type)[-1]
    element, pack = _product_element(element_of(a.type), depth, columns, level)
    preferred = [axes.preference(tile)[0] for tile in (a, b)]
    units = depth // pack
    return (
        (is_float(element) or pack == 4)
        and axes.dot_axis(dot) == len(batch) + 1
        and preferred == [len(batch) + 1, len(batch)]
        and units % level.lanes(bit_width(element) * pack) == 0
        and columns % block_along_k(rows, level)[1] == 0
        and rows * 8 <= units
        and not (level.tiles and rows >= EDGE and fits_tiles(dot))
    )


def _read_in_place(dot: Operation, name: str, k_axis: int) -> InPlace | None:
    """Returns an operand as the inner loop can read it from global memory, element by element; None where it has to be packed:
    it is computed, masked, not contiguous along either axis, or memory is written between its load and the product."""
    value, block = operand(dot, name), dot.parent
    load, axes = value.defining_op, tuple(range(len(shape_of(value.type))))
    while load is not None and load.name == "tt.trans":
        axes = tuple(load.attributes["order"][axis] for axis in axes)
        load = load.operand.defining_op
    if load is None or load.name != "tt.load" or load.parent is not block or block is None or not _is_unmasked(load):
        return None
    between = block.operations[block.index(load) : block.index(dot)]
    if any(Effect.WRITE_GLOBAL in effects_of(op) for op in between):
        return None
    steps = strides(operand(load, "ptr"))
    in_place = InPlace(value, load, axes, k_axis, k_inner=steps[axes[k_axis]] == 1)
    contiguous = in_place.k_inner or steps[axes[in_place.other_axis]] == 1
    return in_place if contiguous and None not in steps else None


def _is_unmasked(load: Operation) -> bool:
    """Whether a load reads every element."""
    mask = optional_operand(load, "mask")
    return mask is None or (mask.defining_op is not None and mask.defining_op.attributes.get("value") is True)
