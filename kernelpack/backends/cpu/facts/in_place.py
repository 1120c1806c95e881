"""Whether storing one element after the other changes what a load of the same nest has yet to read.

A tile is loaded whole before anything of it is stored. Pointers that come from different arguments of a kernel are taken to point to
different memory, or to the same elements at the same places.
"""

from __future__ import annotations

import math

from kernelpack.backends.cpu.facts.affine import Span, span_of, strides
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import operand
from kernelpack.ir.types import is_pointer, shape_of
from kernelpack.ir.views import Carried, slot_of

_MOVES = ("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans")
"""What gives a tile of the same pointers."""


def overwrites(store: Operation, load: Operation, elsewhere: bool) -> bool:
    """Whether a store may hit elements that a load before it reads later, when both go through their tiles in the same order.
    `elsewhere`: the load's elements are read at other places than they were loaded for."""
    target, source = _address(store), _address(load)
    if target is source:
        return elsewhere or not _all_different(target)
    return _have_one_base(target, source) and _meet(target, source) is not False


def stores_over(store: Operation, earlier: Operation) -> bool:
    """Whether a store hits elements that an earlier one stores later, when both go through their tiles in the same order. Even tiles at a
    distance that only running tells are taken to lie apart, as the halves of a row do."""
    target, other = _address(store), _address(earlier)
    if target is other:
        return not _all_different(target)
    return _have_one_base(target, other) and bool(_meet(target, other))


def _address(access: Operation) -> Value:
    """Returns what an access goes through; of an operation that does others for each element, its first tile."""
    first, *_ = access.operands
    return first


def _have_one_base(target: Value, source: Value) -> bool:
    return is_pointer(target.type) and is_pointer(source.type) and bool(_bases(source, set()) & _bases(target, set()))


def _meet(target: Value, source: Value) -> bool | None:
    """Whether two tiles of pointers have elements in common; None where a run-time distance decides."""
    steps = strides(source)
    even = None not in steps and steps == strides(target)
    (one, before), (other, after) = _offset(source), _offset(target)
    if one is other and before is not None and after is not None:
        distance = after.plus(before, -1)
        if not distance.terms:
            common = math.gcd(*(step for step in steps if isinstance(step, int)))
            between = even and "scalar" not in steps and common and (after.low - before.low) % common
            return not between and distance.low <= 0 <= distance.high
    return None if even else True


def _all_different(pointer: Value) -> bool:
    """Whether every element of a tile of pointers is known to be another one; run-time strides are taken to leave no overlap."""
    reach = 0
    steps = [(step, extent) for step, extent in zip(strides(pointer), shape_of(pointer.type), strict=True) if extent > 1]
    constant = sorted((abs(step), extent) for step, extent in steps if isinstance(step, int))
    for step, extent in constant:
        if step <= reach:
            return False
        reach += step * (extent - 1)
    return all(step is not None for step, _ in steps)


def _offset(pointer: Value) -> tuple[Value, Span | None]:
    """Returns where a pointer counts from, and how far from there it may be, in elements."""
    op = pointer.defining_op
    if op is not None and op.name in _MOVES:
        return _offset(op.operand)
    if op is None or op.name != "tt.addptr":
        return pointer, Span()
    pointer, offset = op.operands
    start, before = _offset(pointer)
    step = span_of(offset)
    return start, before.plus(step) if before is not None and step is not None else None


def _bases(pointer: Value, seen: set[Value]) -> set[Value]:
    """Returns the arguments, or results of other operations, that a pointer may have been made from."""
    if pointer in seen:
        return set()
    seen.add(pointer)
    sources = _sources(pointer)
    return set().union(*(_bases(source, seen) for source in sources)) if sources else {pointer}


def _sources(pointer: Value) -> list[Value]:
    slot, op = slot_of(pointer), pointer.defining_op
    if isinstance(slot, Carried):
        return [slot.initial]
    if op is None:
        return []
    match op.name:
        case "scf.if" if slot is not None:
            return slot.source_values()
        case "arith.select":
            return [operand(op, "true_value"), operand(op, "false_value")]
        case "tt.addptr":
            return [operand(op, "ptr")]
        case _:
            return [op.operand] if op.name in (*_MOVES, "tt.bitcast") else []
