"""Splits reductions that cross warps: first within each warp, then over one partial result of each warp, exchanged by a conversion."""

from __future__ import annotations

from kernelpack.ir.core import Builder, Operation, Value
from kernelpack.ir.types import TensorType, shape_of, with_shape
from kernelpack.layout.encoding import LinearEncoding, layout_of, with_layout
from kernelpack.layout.families import fit
from kernelpack.layout.linear import LinearLayout, log2
from kernelpack.layout.transfer import insert_dim, permute_dims, remove_dim, reshape


def split_reductions(function: Operation) -> None:
    """Rewrites a ttgir function in place: afterwards every reduction stays within warps."""
    for op in list(function.walk()):
        if op.name == "tt.reduce":
            source, *_ = op.operands
            warps = warp_bits(layout_of(source), op.attributes["axis"])
            if warps:
                _split(op, warps)


def warp_bits(layout: LinearLayout, axis: int) -> list[int]:
    """Returns the bits of the coordinate along `axis` that differ between warps, lowest first."""
    return sorted(log2(basis[axis]) for basis in layout.bases("warp") if basis[axis])


def _split(op: Operation, warps: list[int]) -> None:
    axis, (source, *_) = op.attributes["axis"], op.operands
    build = Builder.before(op)
    parts = [_warps_first(build, value, axis, warps) for value in op.operands]
    partial = _reduce(build, op, parts, axis + 1)
    home = insert_dim(remove_dim(layout_of(source), axis), axis)
    if len(partial) > 1:  # tuples take many instructions to combine: lanes share them; a single value stays in registers
        home = _over_lanes(home, axis, len(warps))
    exchanged: list[Value] = []
    for value in partial:
        everywhere = fit(home, shape_of(value.type))
        exchanged.append(build.value("ttg.convert_layout", [value], None, with_layout(value.type, everywhere)))
    op.replace_with(*_reduce(build, op, exchanged, axis))


def _over_lanes(layout: LinearLayout, axis: int, bits: int) -> LinearLayout:
    """Returns the layout with elements along a dimension that has one so far, as many as lanes that hold copies can take of 2 ** bits."""
    lanes = list(layout.bases("lane"))
    free = [lane for lane, basis in enumerate(lanes) if not any(basis)][:bits]
    for bit, lane in enumerate(free):
        lanes[lane] = tuple(1 << bit if place == axis else 0 for place in range(len(layout.outs)))
    outs = tuple((name, size << len(free) if place == axis else size) for place, (name, size) in enumerate(layout.outs))
    return LinearLayout(layout.with_bases("lane", lanes).ins, outs)


def _warps_first(build: Builder, value: Value, axis: int, warps: list[int]) -> Value:
    """Returns the tile with dimension `axis` split in two: which warp, and what it holds. Moves no data."""
    layout, shape = layout_of(value), shape_of(value.type)
    bits = log2(shape[axis])
    split = (*shape[:axis], *(2,) * bits, *shape[axis + 1 :])
    # one dimension a bit, highest first; then the bits of the warps go to the front
    places = [axis + bits - 1 - bit for bit in reversed(range(bits))]
    front = [axis + bits - 1 - bit for bit in reversed(warps)]
    order = (
        *range(axis),
        *front,
        *(place for place in places if place not in front),
        *range(axis + bits, len(split)),
    )
    merged = (*shape[:axis], 1 << len(warps), shape[axis] >> len(warps), *shape[axis + 1 :])
    one_by_one = reshape(layout, split)
    moved = permute_dims(one_by_one, order)

    def kind(new: tuple[int, ...], of: LinearLayout) -> TensorType:
        result = with_shape(value.type, new, LinearEncoding(of))
        assert isinstance(result, TensorType)
        return result

    value = build.value("tt.reshape", [value], None, kind(split, one_by_one))
    value = build.value("tt.trans", [value], {"order": order}, kind(tuple(split[place] for place in order), moved))
    return build.value("tt.reshape", [value], None, kind(merged, reshape(moved, merged)))


def _reduce(build: Builder, like: Operation, values: list[Value], axis: int) -> list[Value]:
    """Builds the reduction `like` over other operands."""
    types = []
    for value in values:
        shape = shape_of(value.type)
        result = with_shape(value.type, (*shape[:axis], *shape[axis + 1 :]))
        types.append(with_layout(result, remove_dim(layout_of(value), axis)))
    copy = Operation(like.name, values, types, {**like.attributes, "axis": axis}, [like.regions[0].clone({})], like.location)
    return list(build.insert(copy).results)
