"""Where a nest may stop before its tile ends, as it is known only when it runs: of 200 columns in blocks of 128 the second block has 72.

What comes after is not stored, leaves sums as they are, or is one value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelpack.backends.cpu.facts.affine import Bound, bounds_along
from kernelpack.backends.cpu.facts.ends import ZERO_STAYS_ZERO
from kernelpack.backends.cpu.facts.observed import changes_once_at_most, ending_of
from kernelpack.backends.cpu.plan.buffers import Buffer
from kernelpack.backends.cpu.plan.sinks import Materialize, Reduce, Root, Store
from kernelpack.backends.cpu.plan.tile_program import Nest
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import Trait, definition, optional_operand
from kernelpack.ir.dialects.tt import combine_name
from kernelpack.ir.types import I1, element_of, shape_of
from kernelpack.ir.views import slot_of

_INFINITY_STAYS = ("arith.extf", "arith.truncf")
_SUMS = ("arith.addf", "arith.addi", "arith.ori", "arith.xori")
_EXTREMA = {"arith.maximumf": -math.inf, "arith.maxnumf": -math.inf, "arith.minimumf": math.inf, "arith.minnumf": math.inf}
"""The number that such an operation leaves every number with."""
_MOST = 256
"""How many tiles are looked at for what a sum may hold: branches come together again and again."""

Evens = dict[tuple[Value, int], list[Bound] | None]
"""What `_even` found, by tile and axis."""


@dataclass(frozen=True)
class Stop:
    """A bound: where it does not hold, with the place along an axis added, a nest has nothing to do, but for `evens`, of which all
    that follows is one value."""

    bound: Bound
    evens: tuple[Root, ...] = ()


def stops_of(nest: Nest, plain: Mapping[Value, Mapping[int, Buffer]]) -> dict[int, Stop]:
    """Returns where a nest may stop, by axis. `plain` are the buffers of tiles."""
    found: dict[int, Stop] = {}
    known: Evens = {}
    for axis in range(len(nest.shape)):
        needed = [_bounds(root, axis, plain) for root in nest.roots]
        evens: list[Root] = []
        for number, root in enumerate(nest.roots):
            if not needed[number] and axis == nest.lane_axis and (rest := _rest_of(root, axis, known)):
                needed[number] = rest
                evens.append(root)
        common = [bound for bound in needed[0] if all(bound in more for more in needed)]
        if common:
            found[axis] = Stop(common[0], tuple(evens))
    return found


def _bounds(root: Root, axis: int, plain: Mapping[Value, Mapping[int, Buffer]]) -> list[Bound]:
    match root:
        case Store():
            return _holds(optional_operand(root.op, "mask"), axis)
        case Materialize(source=None, into=Buffer()):
            held = [value for value, buffers in plain.items() if root.into in buffers.values()]
            return _left(root.value, held, axis)
    return []


def _rest_of(root: Root, axis: int, known: Evens) -> list[Bound]:
    """Returns bounds after which what a root takes is one value, which can be written, or combined with a result, when it is known."""
    match root:
        case Materialize(source=None, into=Buffer(inner_axis=inner)) if inner == axis:
            return _even(root.value, axis, known) or []
        case Reduce(op=op, axis=along) if along == axis and len(op.operands) == 1:
            (source,) = op.operands
            return _even(source, axis, known) or [] if adds(op) or changes_once_at_most(op, None) else []
    return []


def adds(reduction: Operation) -> bool:
    """Whether a reduction is a sum: of zeros, infinities and NaN one is as good as many."""
    return combine_name(reduction) in ("arith.addf", "arith.addi")


def _even(value: Value, axis: int, known: Evens) -> list[Bound] | None:
    """Returns bounds: where one does not hold, all elements of a tile along an axis are the same. None where they are anywhere."""
    if (value, axis) not in known:
        known[value, axis] = _evenness(value, axis, known)
    return known[value, axis]


def _evenness(value: Value, axis: int, known: Evens) -> list[Bound] | None:
    op, shape = value.defining_op, shape_of(value.type)
    if not shape or shape[axis] == 1:
        return None
    if op is None:
        return []
    found = bounds_along(value, axis) if element_of(value.type) == I1 else []
    match op.name, op.operands:
        case "tt.splat" | "arith.constant", _:
            return None
        case "tt.load", _:
            mask, other = optional_operand(op, "mask"), optional_operand(op, "other")
            return _both(_holds(mask, axis), _even(other, axis, known)) if other is not None else []
        case "arith.select", (condition, _, other):
            found = _both(_holds(condition, axis), _even(other, axis, known)) or []
        case "tt.broadcast", (source,):
            return _even(source, axis, known)
        case "tt.expand_dims", (source,):
            return _even(source, axis - (axis > op.attributes["axis"]), known)
    if not {Trait.ELEMENTWISE, Trait.PURE} <= definition(op.name).traits or op.regions:
        return found
    bounds: list[Bound] | None = None
    for operand in op.operands:
        bounds = _both(bounds, _even(operand, axis, known))
    return None if bounds is None else [*found, *bounds]


def _both(one: list[Bound] | None, other: list[Bound] | None) -> list[Bound] | None:
    """Returns the bounds of what two tiles have in common."""
    if one is None or other is None:
        return other if one is None else one
    return [bound for bound in one if bound in other]


def _holds(mask: Value | None, axis: int) -> list[Bound]:
    return bounds_along(mask, axis) if mask is not None and shape_of(mask.type) else []


def _left(value: Value, held: Sequence[Value], axis: int) -> list[Bound]:
    """Returns bounds: where one does not hold, a tile is what its buffer holds already, one of the values `held`."""
    op = value.defining_op
    if op is None:
        return []
    match op.name, op.operands:
        case "arith.select", (condition, chosen, kept) if kept in held:
            return [*_holds(condition, axis), *_compared(condition, chosen, kept, axis)]
        case "math.fma", (factor, other, total) if factor is other and total in held and _is_never(total, "negative zero"):
            return _rest(factor, axis, 0)
        case name, (one, other) if name in _SUMS or name in _EXTREMA:
            for kept, more in ((one, other), (other, one)):
                special = {"arith.addf": "negative zero", "arith.maxnumf": "NaN", "arith.minnumf": "NaN"}.get(name)
                if kept in held and (special is None or _is_never(kept, special)):
                    return _rest(more, axis, _EXTREMA.get(name, 0))
    return []


def _compared(condition: Value, chosen: Value, kept: Value, axis: int) -> list[Bound]:
    """Returns the same of a selection of the larger, or of the smaller: an infinity is never chosen."""
    op = condition.defining_op
    if op is None or op.name != "arith.cmpf":
        return []
    sides = list(op.operands)
    least = {"ogt": -math.inf, "olt": math.inf}.get(op.attributes["predicate"])
    if least is not None and sides == [kept, chosen]:
        least = -least
    return _rest(chosen, axis, least) if least is not None and sides in ([chosen, kept], [kept, chosen]) else []


def _rest(value: Value, axis: int, constant: float, known: dict[Value, list[Bound]] | None = None) -> list[Bound]:
    """Returns bounds: where one does not hold, every element of a tile is a constant, which is 0 or infinite."""
    known = {} if known is None else known
    if value not in known:
        known[value] = _rest_bounds(value, axis, constant, known)
    return known[value]


def _rest_bounds(value: Value, axis: int, constant: float, known: dict[Value, list[Bound]]) -> list[Bound]:
    op = value.defining_op
    if op is None:
        return []
    if op.name in (_INFINITY_STAYS if constant else ZERO_STAYS_ZERO):
        return _rest(op.operand, axis, constant, known)
    if op.name == "arith.mulf" and constant == 0:
        one, other = op.operands
        bounds = _rest(other, axis, 0, known)
        return [bound for bound in _rest(one, axis, 0, known) if bound in bounds]
    mask, rest = ending_of(value)
    return _holds(mask, axis) if isinstance(rest, (int, float)) and rest == constant else []


def _is_never(value: Value, special: str) -> bool:
    """Whether no element of a tile is `negative zero`, or `NaN`: of what loops carry, if it begins so and goes on so."""
    return _stays(value, special, (), [])


def _stays(value: Value, special: str, assumed: tuple[Value, ...], looked_at: list[Value]) -> bool:
    if value in assumed:
        return True
    looked_at.append(value)
    slot, op = slot_of(value), value.defining_op
    if len(looked_at) > _MOST or (slot is None and op is None):
        return False
    if slot is not None:
        return all(_stays(source, special, (*assumed, *slot.values), looked_at) for source in slot.source_values())
    assert op is not None
    match op.name, op.operands:
        case "arith.constant", _:
            number = op.attributes["value"]
            return not (math.isnan(number) if special == "NaN" else number == 0 and math.copysign(1, number) < 0)
        case "arith.select", (_, one, other):
            return all(_stays(side, special, assumed, looked_at) for side in (one, other))
        case "math.fma", (factor, other, total) if factor is other and special == "negative zero":  # squares do not round to it
            return _stays(total, special, assumed, looked_at)
        case name, sides if name in {"negative zero": ("arith.addf",), "NaN": ("arith.maxnumf", "arith.minnumf")}[special]:
            return any(_stays(side, special, assumed, looked_at) for side in sides)
    return False
