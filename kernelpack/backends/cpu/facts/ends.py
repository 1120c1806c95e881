"""Where products end, as the kernel knows only when it runs: along k, where both operands are zero from somewhere on, because their loads
are masked there; along rows and columns, where an operand is, and nothing is stored that depends on the results."""

from __future__ import annotations

from kernelpack.backends.cpu.facts.affine import Bound, bounds_along
from kernelpack.ir.core import BlockArgument, Operation, Value
from kernelpack.ir.dialect import Trait, definition, operand_name, optional_operand
from kernelpack.ir.types import is_int, shape_of
from kernelpack.ir.views import factors, is_zero, slot_fed_by

ZERO_STAYS_ZERO = ("arith.extf", "arith.truncf", "arith.extsi", "arith.trunci", "arith.sitofp", "tt.fp_to_fp")


def depth_of(dot: Operation) -> Bound | None:
    """Returns what holds at each place along k, which is added to the terms, but for those where both operands are zero. One of them is not
    enough: the other may be infinite there."""
    a, b = factors(dot)
    rank = len(shape_of(a.type))
    others = _bounds(b, rank - 2)
    return next((bound for bound in _bounds(a, rank - 1) if bound in others), None)


def ends_of(dot: Operation) -> dict[int, Bound]:
    """Returns, by axis of a product's result, what holds, with the place along it added, wherever the result is looked at. Operands that are
    loaded in another block decide nothing: where all of a loop's products have one, as in attention, nothing is gained (measured)."""
    a, b = factors(dot)
    rank = len(shape_of(dot.result.type))
    masked = {
        axis: _bounds(tile, axis) if _is_loaded_beside(tile, dot) else [] for tile, axis in ((a, rank - 2), (b, rank - 1))
    }
    found = {axis: _kept(dot.result, axis, bounds) for axis, bounds in masked.items()}
    return {axis: bound for axis, bound in found.items() if bound is not None}


def _kept(tile: Value, axis: int, bounds: list[Bound]) -> Bound | None:
    """Returns the first of some bounds, of scalars that the whole kernel has, that holds wherever something is stored that depends on a
    tile."""
    bounds = [bound for bound in bounds if all(_is_for_all(value) for value, _ in bound.terms)]
    seen = {(tile, axis)}
    pending = [*seen] if bounds else []
    while pending:
        value, along = pending.pop()
        for user, index in value.uses:
            if user.name == "tt.store" and operand_name(user, index) == "value":
                mask = optional_operand(user, "mask")
                stored = bounds_along(mask, along) if mask is not None else []
                bounds = [bound for bound in bounds if bound in stored]
            else:
                following = _made_of(user, index, along)
                bounds = bounds if following else []
                pending += [place for place in following if place not in seen]
                seen.update(following)
    return bounds[0] if bounds else None


def _is_for_all(value: Value) -> bool:
    """Whether a scalar is an argument of the kernel, or computed once in it."""
    op = value.defining_op
    block = value.owner if isinstance(value, BlockArgument) else op.parent if op is not None else None
    around = block.parent.parent if block is not None and block.parent is not None else None
    return around is not None and around.name == "tt.func"


def _made_of(user: Operation, index: int, axis: int) -> list[tuple[Value, int]]:
    """Returns what depends on a tile, its operand, place by place along an axis, and the axis there; none where that is not all that
    depends on it."""
    slot = slot_fed_by(user, index)
    if slot is not None:
        return [(value, axis) for value in slot.values]
    match user.name:
        case "tt.dot":
            last = len(shape_of(user.result.type)) - 1
            summed = {"a": last, "b": last - 1}.get(operand_name(user, index))
            return [] if axis == summed else [(user.result, axis)]
        case "tt.reduce":
            along = user.attributes["axis"]
            return [] if axis == along else [(result, axis - (axis > along)) for result in user.results]
        case "tt.expand_dims":
            return [(user.result, axis + (axis >= user.attributes["axis"]))]
        case "tt.broadcast" if shape_of(user.operand.type)[axis] == shape_of(user.result.type)[axis]:
            return [(user.result, axis)]
        case "tt.trans":
            return [(user.result, user.attributes["order"].index(axis))]
        case name if {Trait.ELEMENTWISE, Trait.PURE} <= definition(name).traits and not user.regions:
            may_trap = is_int(user.result.type) and ("div" in name or "rem" in name)
            return [] if may_trap else [(user.result, axis)]
    return []


def _is_loaded_beside(tile: Value, dot: Operation) -> bool:
    op = tile.defining_op
    return op is not None and op.parent is dot.parent


def _bounds(tile: Value, axis: int) -> list[Bound]:
    """Returns what holds wherever a tile is not zero."""
    op = tile.defining_op
    if op is None:
        return []
    if op.name in ZERO_STAYS_ZERO:
        return _bounds(op.operand, axis)
    if op.name == "tt.trans":
        return _bounds(op.operand, op.attributes["order"][axis])
    if op.name != "tt.load":
        return []
    mask, other = optional_operand(op, "mask"), optional_operand(op, "other")
    return bounds_along(mask, axis) if mask is not None and other is not None and is_zero(other) else []
