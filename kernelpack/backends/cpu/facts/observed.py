"""How far along each axis a kernel looks at its tiles: a row of 1,000 elements in a tile of 1,024 has an end that no result depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.cpu.facts.affine import at_least_zero, constant_of, span_of, strides
from kernelpack.ir.core import Attribute, Operation, Value
from kernelpack.ir.dialect import Trait, definition, operand, optional_operand
from kernelpack.ir.dialects.tt import combine_name, extremum_of
from kernelpack.ir.types import shape_of

Extents = tuple[int, ...]
"""How many elements along each axis."""


class Observed:
    """What of each tile of a kernel is observed, and which masks are true for the leading elements along an axis.

    Others than these are never stored, never reduced but as a constant that changes a result once at most, and never decide which
    memory is read. `rests` are those constants, of the reductions whose tiles end in them; `domains` is how far reductions and stores go.
    """

    def __init__(self, function: Operation, infos: AxisInfoAnalysis) -> None:
        self._infos = infos
        self.rests: dict[Operation, Attribute] = {}
        self.domains: dict[Operation, Extents] = {}
        self._masks: dict[Value, Extents] = {}
        self._seen: dict[Value, Extents] = {}
        for op in reversed(list(function.walk())):  # uses come before what they use
            self._look_at(op)

    def extents(self, value: Value) -> Extents:
        """Returns how far a tile is observed; it is whole where nothing uses it."""
        return self._seen.get(value, shape_of(value.type))

    def mask_extents(self, mask: Value | None, shape: Extents) -> Extents:
        """Returns where a mask of a tile of this shape ends: it is false from there on."""
        if mask is None or not shape_of(mask.type):
            return shape
        if mask not in self._masks:
            self._masks[mask] = self._ends(mask)
        return self._masks[mask]

    def _ends(self, mask: Value) -> Extents:
        op, shape = mask.defining_op, shape_of(mask.type)
        if op is None:
            return shape
        match op.name:
            case "arith.andi":
                return _least(*(self.mask_extents(side, shape) for side in op.operands))
            case "tt.broadcast":
                extents, source = self.mask_extents(op.operand, shape), shape_of(op.operand.type)
                return tuple(e if s == t else t for e, s, t in zip(extents, source, shape, strict=True))
            case "tt.expand_dims":
                axis, extents = op.attributes["axis"], self.mask_extents(op.operand, shape)
                return (*extents[:axis], 1, *extents[axis:])
            case "arith.cmpi":
                found = _prefix(mask)
                if found is None or not at_least_zero(found.beyond, self._infos):
                    return shape
                return tuple(found.count if axis == found.axis else extent for axis, extent in enumerate(shape))
            case _:
                return shape

    def _see(self, values: Sequence[Value | None], extents: Extents) -> None:
        for value in values:
            if value is not None and shape_of(value.type):
                before = self._seen.get(value, (0,) * len(extents))
                self._seen[value] = tuple(map(max, before, extents))

    def _look_at(self, op: Operation) -> None:
        """Adds what an operation observes of its operands."""
        match op.name:
            case "tt.store":
                pointer, mask = operand(op, "ptr"), optional_operand(op, "mask")
                self.domains[op] = self.mask_extents(mask, shape_of(pointer.type))
                self._see([pointer, operand(op, "value")], self.domains[op])
                self._see_whole([mask])
            case "tt.load":
                pointer, mask = operand(op, "ptr"), optional_operand(op, "mask")
                self._see([pointer], self.mask_extents(mask, shape_of(pointer.type)))
                self._see([optional_operand(op, "other")], self.extents(op.result))
                self._see_whole([mask])
            case "arith.select":
                condition, chosen, other = op.operands
                extents = self.extents(op.result)
                self._see([condition, other], extents)
                self._see([chosen], _least(extents, self.mask_extents(condition, extents)))
            case "tt.reduce":
                self._reduced(op)
            case "tt.broadcast":
                source, shape = shape_of(op.operand.type), shape_of(op.result.type)
                extents = self.extents(op.result)
                self._see([op.operand], tuple(e if s == t else 1 for e, s, t in zip(extents, source, shape, strict=True)))
            case "tt.expand_dims":
                axis, extents = op.attributes["axis"], self.extents(op.result)
                self._see([op.operand], (*extents[:axis], *extents[axis + 1 :]))
            case _ if Trait.ELEMENTWISE in definition(op.name).traits and len(op.results) == 1:
                self._see(op.operands, self.extents(op.result))
            case _:
                self._see_whole(op.operands)

    def _see_whole(self, values: Sequence[Value | None]) -> None:
        for value in values:
            if value is not None:
                self._see([value], shape_of(value.type))

    def _reduced(self, op: Operation) -> None:
        axis, (source, *others) = op.attributes["axis"], op.operands
        seen = list(shape_of(source.type))
        for place, extent in enumerate(map(max, *map(self.extents, [*op.results, *op.results]))):
            seen[place + (place >= axis)] = extent
        if not others:
            end, rest = self._rest(source, axis)
            if end < seen[axis] and changes_once_at_most(op, rest):
                seen[axis], self.rests[op] = end, rest
        self.domains[op] = tuple(seen)
        self._see(op.operands, self.domains[op])

    def _rest(self, value: Value, axis: int) -> tuple[int, Attribute]:
        """Returns where along an axis a tile goes on as a constant, and that."""
        mask, rest = ending_of(value)
        shape = shape_of(value.type)
        return (shape[axis], None) if rest is None else (max(1, self.mask_extents(mask, shape)[axis]), rest)


def ending_of(value: Value) -> tuple[Value | None, Attribute]:
    """Returns a mask and a constant: where the mask is false, a tile is that constant. None twice where there are no such."""
    op = value.defining_op
    mask, rest = None, None
    if op is not None and op.name == "arith.select":
        mask, _, rest = op.operands
    elif op is not None and op.name == "tt.load":
        mask, rest = optional_operand(op, "mask"), optional_operand(op, "other")
    constant = rest.defining_op if rest is not None else None
    if constant is None or constant.name != "arith.constant":
        return None, None
    return mask, constant.attributes["value"]


def leading(mask: Value) -> tuple[int, int] | None:
    """Returns the axis along which a comparison holds for exactly so many leading elements, and that number, where both are known."""
    found = _prefix(mask)
    return None if found is None or found.beyond else (found.axis, found.count)


@dataclass(frozen=True)
class _Prefix:
    """A mask that holds for `count` leading elements along an axis where the sum of scalars (with factors) `beyond` is zero, and for fewer
    where that is more."""

    axis: int
    count: int
    beyond: Mapping[Value, int]


def _prefix(mask: Value) -> _Prefix | None:
    op, shape = mask.defining_op, shape_of(mask.type)
    if op is None or op.name != "arith.cmpi" or not shape:
        return None
    predicate, (small, large) = op.attributes["predicate"], op.operands
    if predicate in ("sgt", "sge"):
        small, large = large, small
    elif predicate not in ("slt", "sle"):
        return None
    limit, span, steps = constant_of(large), span_of(small), strides(small)
    axes = [axis for axis, step in enumerate(steps) if step != 0 and shape[axis] > 1]
    if limit is None or span is None or len(axes) != 1:
        return None
    axis, step = axes[0], steps[axes[0]]
    if not isinstance(step, int) or step <= 0 or span.high - span.low != step * (shape[axis] - 1):
        return None
    last = limit - span.low - (predicate in ("slt", "sgt"))
    return _Prefix(axis, max(0, min(shape[axis], last // step + 1)), span.terms)


def _least(*extents: Extents) -> Extents:
    return tuple(map(min, *extents))


_ANY = object()
_NEUTRAL: dict[str, object] = {
    "addf": 0, "mulf": 1, "addi": 0, "muli": 1, "xori": 0, "andi": _ANY, "ori": _ANY,
    **{f"{which}{kind}": _ANY for which in ("min", "max") for kind in ("numf", "imumf", "si", "ui")},
}  # fmt: skip
"""The constant that changes a result at most once, however often it is combined with it."""


def changes_once_at_most(op: Operation, constant: Attribute) -> bool:
    """Whether a reduction's result is the same however often a constant is combined with it, if it is at all."""
    if extremum_of(op) is not None:
        return True
    neutral = _NEUTRAL.get((combine_name(op) or "").removeprefix("arith."))
    return neutral is _ANY or (neutral is not None and constant == neutral)
