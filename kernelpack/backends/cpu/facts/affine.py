"""How integer and pointer tiles run along each axis, and when a comparison of such tiles holds for every element.

Index arithmetic is taken not to wrap, as address computation in real kernels does not. What wraps on purpose is told from it: it has
fewer than 32 bits, or constants that alone exceed its type, as in hash functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.ir.core import Builder, Operation, Value
from kernelpack.ir.types import I64, TensorType, bit_width, element_of, is_int, is_pointer, shape_of

Stride = int | Literal["scalar"] | None
"""The step from one element to the next: a constant, a run-time scalar, or None where there is no fixed step."""


def strides(value: Value, cache: dict[Value, tuple[Stride, ...]] | None = None) -> tuple[Stride, ...]:
    """Returns the step along every axis of an integer or pointer tile, for pointers in elements."""
    cache = {} if cache is None else cache
    if value not in cache:
        steps = _strides(value, cache)
        cache[value] = tuple(0 if step == 0 else None for step in steps) if may_wrap(value) else steps
    return cache[value]


_WRAPPING = ("arith.addi", "arith.subi", "arith.muli", "arith.trunci")
_NEAR = 8
"""How many operations are looked through for constants. Sums of sums of the same value are looked through more than once."""


def may_wrap(value: Value) -> bool:
    """Whether a sum, product or truncation is taken to wrap: narrow ones that are not known to fit, wide ones that are known not to."""
    op = value.defining_op
    if op is None or op.name not in _WRAPPING:
        return False
    span = span_of(op.operand, _NEAR) if op.name == "arith.trunci" else _span_of(value, _NEAR)
    return _is_narrow(value) if span is None else not _fits(span, value)


def _is_narrow(value: Value) -> bool:
    return bit_width(element_of(value.type)) < 32


def _fits(span: Span, value: Value) -> bool:
    """Whether what is known of a span fits a value's type; scalars in the span of a narrow value may be anything."""
    most = 1 << bit_width(element_of(value.type)) - 1
    if _is_narrow(value) and span.terms:
        return False
    return -most <= span.low and span.high < most and all(abs(factor) <= most for factor in span.terms.values())


def _strides(value: Value, cache: dict[Value, tuple[Stride, ...]]) -> tuple[Stride, ...]:
    rank = len(shape_of(value.type))
    unknown: tuple[Stride, ...] = (None,) * rank
    op = value.defining_op
    if op is None or not (is_int(value.type) or is_pointer(value.type)):
        return unknown
    match op.name:
        case "arith.constant" | "tt.splat":
            return (0,) * rank
        case "tt.make_range":
            return (1,)
        case "tt.expand_dims":
            before, axis = strides(op.operand, cache), op.attributes["axis"]
            return (*before[:axis], 0, *before[axis:])
        case "tt.broadcast":
            before, extents = strides(op.operand, cache), shape_of(op.operand.type)
            return tuple(0 if extent == 1 else stride for stride, extent in zip(before, extents, strict=True))
        case "tt.trans":
            before = strides(op.operand, cache)
            return tuple(before[axis] for axis in op.attributes["order"])
        case "arith.addi" | "tt.addptr":
            left, right = (strides(side, cache) for side in op.operands)
            return tuple(_add(a, b) for a, b in zip(left, right, strict=True))
        case "arith.subi":
            left, right = (strides(side, cache) for side in op.operands)
            return tuple(_add(a, _scale(b, -1)) for a, b in zip(left, right, strict=True))
        case "arith.muli":
            lhs, rhs = op.operands
            for one, other in ((lhs, rhs), (rhs, lhs)):
                factor = constant_of(other)
                uniform = all(stride == 0 for stride in strides(other, cache))
                if uniform:
                    return tuple(_scale(stride, factor) for stride in strides(one, cache))
            return unknown
        case "arith.extsi" | "arith.trunci" | "tt.int_to_ptr" | "tt.ptr_to_int" | "tt.bitcast":
            before = strides(op.operand, cache)
            same = op.name.startswith("arith") or bit_width(op.operand.type) == bit_width(value.type)
            return before if same and op.name.startswith("arith") else tuple(0 if s == 0 else None for s in before)
        case _:
            uniform = all(
                stride == 0
                for operand in op.operands
                if isinstance(operand.type, TensorType)
                for stride in strides(operand, cache)
            )
            pure = op.name.startswith(("arith.", "math."))
            return (0,) * rank if pure and uniform and op.operands else unknown


def _add(a: Stride, b: Stride) -> Stride:
    if a is None or b is None:
        return None
    if a == 0 or b == 0:
        return b if a == 0 else a
    return a + b if isinstance(a, int) and isinstance(b, int) else "scalar"


def _scale(stride: Stride, factor: int | None) -> Stride:
    if stride is None or stride == 0:
        return stride
    return stride * factor if isinstance(stride, int) and factor is not None else "scalar"


def constant_of(value: Value) -> int | None:
    """Returns the integer that a scalar or every element of a tile equals, where it is a constant."""
    op = value.defining_op
    while op is not None and op.name in ("tt.splat", "tt.broadcast", "tt.expand_dims", "arith.extsi"):
        op = op.operand.defining_op
    if op is not None and op.name == "arith.constant" and is_int(op.result.type):
        return int(op.attributes["value"])
    return None


@dataclass(frozen=True)
class Span:
    """The values of an integer tile: a sum of scalars (with factors) plus something between `low` and `high`."""

    terms: dict[Value, int] = field(default_factory=dict)
    low: int = 0
    high: int = 0

    def plus(self, other: Span, sign: int = 1) -> Span:
        terms = dict(self.terms)
        for value, factor in other.terms.items():
            terms[value] = terms.get(value, 0) + sign * factor
        low, high = (other.low, other.high) if sign > 0 else (-other.high, -other.low)
        return Span({value: factor for value, factor in terms.items() if factor}, self.low + low, self.high + high)

    def times(self, factor: int) -> Span:
        ends = sorted((self.low * factor, self.high * factor))
        return Span({value: own * factor for value, own in self.terms.items()} if factor else {}, ends[0], ends[1])


def span_of(value: Value, depth: int = 1 << 30) -> Span | None:
    """Returns the span of an integer scalar or tile, or None where it has no such form. Looks through `depth` operations."""
    if not is_int(value.type):
        return None
    span = _span_of(value, depth) if depth else None
    op = value.defining_op
    if span is not None and op is not None and op.name in _WRAPPING and not _fits(span, value):
        span = None
    return Span({value: 1}) if span is None and not shape_of(value.type) else span


def _span_of(value: Value, depth: int) -> Span | None:
    """Returns the same, of integers that do not wrap."""
    op = value.defining_op
    if op is None:
        return None
    match op.name:
        case "arith.constant":
            constant = int(op.attributes["value"])
            return Span(low=constant, high=constant)
        case "tt.make_range":
            return Span(low=op.attributes["start"], high=op.attributes["end"] - 1)
        case "tt.splat" | "tt.expand_dims" | "tt.broadcast" | "tt.trans" | "tt.reshape" | "arith.extsi":
            return span_of(op.operand, depth - 1)
        case "arith.trunci" if _is_narrow(value):
            return span_of(op.operand, depth - 1)
        case "arith.addi" | "arith.subi":
            a, b = (span_of(side, depth - 1) for side in op.operands)
            if a is not None and b is not None:
                return a.plus(b, 1 if op.name == "arith.addi" else -1)
        case "arith.muli":
            lhs, rhs = op.operands
            for one, other in ((lhs, rhs), (rhs, lhs)):
                factor = constant_of(other)
                span = None if factor is None else span_of(one, depth - 1)
                if factor is not None and span is not None:
                    return span.times(factor)
    return None


def build_sum(build: Builder, terms: Iterable[tuple[Value, int]], constant: int = 0) -> Value:
    """Builds the sum of a constant and of scalars with factors, in 64 bits."""
    total = build.constant(constant, I64)
    for value, factor in terms:
        wide = value if element_of(value.type) == I64 else build.value("arith.extsi", [value], None, I64)
        total = build.value("arith.addi", [total, build.value("arith.muli", [wide, build.constant(factor, I64)])])
    return total


@dataclass(frozen=True)
class Bound:
    """A scalar condition: the sum of `terms` is at most `limit`."""

    terms: tuple[tuple[Value, int], ...]
    limit: int

    def never(self, infos: AxisInfoAnalysis) -> bool:
        """Whether it fails whatever the scalars are."""
        return self.limit < 0 and at_least_zero(dict(self.terms), infos)


def at_least_zero(terms: Mapping[Value, int], infos: AxisInfoAnalysis) -> bool:
    """Whether a sum of scalars with factors is known not to be negative."""
    return all(factor > 0 and infos[value].nonnegative for value, factor in terms.items())


def bounds_for_all_true(mask: Value) -> list[Bound | Value] | None:
    """Returns scalar conditions (bounds, or i1 scalars) under which every element of a mask is true, or None."""
    op = mask.defining_op
    if not shape_of(mask.type):
        return [mask]
    if op is None:
        return None
    match op.name:
        case "arith.constant":
            return [] if op.attributes["value"] else None
        case "tt.splat" | "tt.expand_dims" | "tt.broadcast" | "tt.trans" | "tt.reshape":
            return bounds_for_all_true(op.operand)
        case "arith.andi":
            parts = [bounds_for_all_true(operand) for operand in op.operands]
            return None if any(part is None for part in parts) else [bound for part in parts for bound in part or []]
        case "arith.cmpi":
            return _comparison(op)
        case _:
            return None


def _comparison(op: Operation) -> list[Bound | Value] | None:
    found = _below(op)
    if found is None:
        return None
    # every element of the difference is at most the limit exactly if its largest one is
    difference, limit = found
    return [Bound(tuple(difference.terms.items()), limit - difference.high)]


def _below(op: Operation) -> tuple[Span, int] | None:
    """Returns a difference and a limit: a comparison of integers holds where the difference is at most the limit. None of others."""
    lhs, rhs = op.operands
    a, b = span_of(lhs), span_of(rhs)
    if a is None or b is None or element_of(lhs.type) == element_of(op.result.type):
        return None
    match op.attributes["predicate"]:
        case "slt":
            return a.plus(b, -1), -1
        case "sle":
            return a.plus(b, -1), 0
        case "sgt":
            return b.plus(a, -1), -1
        case "sge":
            return b.plus(a, -1), 0
        case _:
            return None


def bounds_along(mask: Value, axis: int) -> list[Bound]:
    """Returns what holds wherever a mask is true: to the terms of each bound the place along the axis is added."""
    op = mask.defining_op
    if op is None:
        return []
    match op.name:
        case "arith.andi":
            return [bound for side in op.operands for bound in bounds_along(side, axis)]
        case "tt.broadcast" if shape_of(op.operand.type)[axis] == shape_of(mask.type)[axis]:
            return bounds_along(op.operand, axis)
        case "tt.expand_dims" if axis != op.attributes["axis"]:
            return bounds_along(op.operand, axis - (axis > op.attributes["axis"]))
        case "tt.trans":
            return bounds_along(op.operand, op.attributes["order"][axis])
        case "arith.cmpi":
            found, sides = _below(op), [strides(side) for side in op.operands]
            if op.attributes["predicate"] in ("sgt", "sge"):
                sides.reverse()
            step = tuple(0 if 0 == a == b else _add(a, _scale(b, -1)) for a, b in zip(*sides, strict=True))
            extent = shape_of(mask.type)[axis]
            if found is not None and step == tuple(int(along == axis) for along in range(len(step))):
                difference, limit = found
                if difference.high - difference.low == extent - 1:
                    return [Bound(tuple(difference.terms.items()), limit - difference.low)]
    return []
