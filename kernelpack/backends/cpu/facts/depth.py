"""How far along k a product has anything to add: from where on both of its operands are zero, because their loads are masked there."""

from __future__ import annotations

from kernelpack.backends.cpu.facts.affine import Bound, bounds_along
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import optional_operand
from kernelpack.ir.types import shape_of
from kernelpack.ir.views import factors, is_zero

_ZERO_STAYS_ZERO = ("arith.extf", "arith.truncf", "arith.extsi", "arith.trunci", "arith.sitofp", "tt.fp_to_fp")


def depth_of(dot: Operation) -> Bound | None:
    """Returns what holds at each place along k, which is added to the terms, but for those where both operands are zero. One of them is not
    enough: the other may be infinite there."""
    a, b = factors(dot)
    rank = len(shape_of(a.type))
    others = _bounds(b, rank - 2)
    return next((bound for bound in _bounds(a, rank - 1) if bound in others), None)


def _bounds(tile: Value, axis: int) -> list[Bound]:
    """Returns what holds wherever a tile is not zero."""
    op = tile.defining_op
    if op is None:
        return []
    if op.name in _ZERO_STAYS_ZERO:
        return _bounds(op.operand, axis)
    if op.name == "tt.trans":
        return _bounds(op.operand, op.attributes["order"][axis])
    if op.name != "tt.load":
        return []
    mask, other = optional_operand(op, "mask"), optional_operand(op, "other")
    return bounds_along(mask, axis) if mask is not None and other is not None and is_zero(other) else []
