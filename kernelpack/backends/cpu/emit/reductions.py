"""Emits the reductions and scans of a nest: accumulators per place, several where vectors allow, and how they become results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kernelpack.backends.cpu.emit.blocking import Blocking
from kernelpack.backends.cpu.emit.elements import constant, register_type
from kernelpack.backends.cpu.emit.evaluate import Evaluator
from kernelpack.backends.cpu.emit.places import Index, Place
from kernelpack.backends.cpu.emit.regions import Regions
from kernelpack.backends.cpu.plan.sinks import Reduce, Root, Scan
from kernelpack.backends.cpu.plan.tile_program import Nest
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute
from kernelpack.ir.dialects.tt import combine_name, extremum_of
from kernelpack.ir.types import I1, FloatType, bit_width, element_of
from kernelpack.llvm.text import Val, vector_width


class Reductions:
    """The reductions and scans of a nest, which all run along one axis. Scalar results go to the scalars of `regions`.

    `accumulators` are stack slots: for every root, place along the other axes, independent partial result, and operand.
    """

    def __init__(self, nest: Nest, blocking: Blocking, ev: Evaluator, regions: Regions) -> None:
        self.nest = nest
        self.blocking = blocking
        self.axis, self.width = blocking.reduced, blocking.width
        self.elements = blocking.width if blocking.reduced == blocking.lane else 1  # of a vector, along the axis
        self.ev = ev
        self.rests = ev.program.observed.rests
        self.em = ev.em
        self.regions = regions
        self.accumulators: dict[tuple[Reduce | Scan, Index, int, int], Val] = {}

    def _outer(self, bases: dict[int, Place]) -> list[Index]:
        """Returns the places of one iteration that differ in something other than the reduced axis."""
        placed = {axis: bases.get(axis, Place()) for axis in range(len(self.nest.shape))}
        points = self.blocking.points(placed)
        kept: dict[Index, None] = {}
        for point in points:
            kept[tuple(place for axis, place in enumerate(point) if axis != self.axis)] = None
        return list(kept)

    def _partials(self) -> int:
        """Returns how many independent accumulators a result has."""
        assert self.axis is not None
        return self.blocking.tile[self.axis] // self.elements

    def start(self, bases: dict[int, Place]) -> None:
        """Reserves the accumulators and gives them their first values, before the loop along the axis begins."""
        for root in self.nest.roots:
            if not isinstance(root, (Reduce, Scan)):
                continue
            identity = _identity(root.op)
            for outer in self._outer(bases):
                for partial in range(self._partials()):
                    for number, operand in enumerate(root.op.operands):
                        element = element_of(operand.type)
                        kind = register_type(element, self.width)
                        slot = self.em.alloca(kind, "acc")
                        start = constant(identity if identity is not None else 0, element, self.width)
                        with self.em.into(self.ev.frames[-1]):
                            self.em.store(start, slot, _alignment(kind))
                        self.accumulators[root, outer, partial, number] = slot

    def add(self, root: Reduce, bases: dict[int, Place], point: Index) -> None:
        """Combines the elements at a point with their accumulators."""
        axis = self.axis
        assert axis is not None
        outer = tuple(place for position, place in enumerate(point) if position != axis)
        partial = (point[axis].offset - bases[axis].offset) // self.elements
        values = [self.ev.vector_of(operand, point) for operand in root.op.operands]
        slots = [self.accumulators[root, outer, partial, number] for number in range(len(values))]
        with self.em.into(self.ev.frames[-1]):
            before = [self.em.load(value.type, slot, _alignment(value.type)) for value, slot in zip(values, slots, strict=True)]
            after = self._combine(root.op, before, values)
            if _identity(root.op) is None:
                after = self._unless_first(point[axis], bases[axis], before=values, after=after)
            for value, slot in zip(after, slots, strict=True):
                self.em.store(value, slot, _alignment(value.type))

    def _unless_first(self, place: Place, start: Place, before: list[Val], after: list[Val]) -> list[Val]:
        """Returns the elements themselves in a loop's first iteration, where there is nothing to combine them with."""
        if place.base is None:
            return after if start.offset else before
        first = self.em.op("i1", f"icmp eq i64 {place.base}, 0")
        return [self.em.select(first, element, combined) for element, combined in zip(before, after, strict=True)]

    def finish(self, bases: dict[int, Place], end: Val | None, evens: Mapping[Root, Val]) -> None:
        """Writes the results, after the loop along the axis. It went to `end`, and all that follows there of a root's tile is one of
        `evens`."""
        for root in self.nest.roots:
            if not isinstance(root, Reduce):
                continue
            for outer in self._outer(bases):
                with self.em.into(self.ev.frames[-1]):
                    values = self._merge(root, outer, end, evens)
                    for buffer, result, value in zip(root.into, root.op.results, values, strict=True):
                        if buffer is not None:
                            self.ev.write(buffer, outer, value)
                        else:
                            self.regions.scalars[result] = value

    def _merge(self, root: Reduce, outer: Index, end: Val | None, evens: Mapping[Root, Val]) -> list[Val]:
        """Combines the partial results of one place, and the lanes where they were reduced."""
        count = len(root.op.operands)
        partials: list[list[Val]] = []
        for partial in range(self._partials()):
            slots = [self.accumulators[root, outer, partial, number] for number in range(count)]
            kinds = [register_type(element_of(operand.type), self.width) for operand in root.op.operands]
            partials.append([self.em.load(kind, slot, _alignment(kind)) for kind, slot in zip(kinds, slots, strict=True)])
        while len(partials) > 1:
            half = len(partials) // 2
            odd = partials[2 * half :]
            partials = [self._combine(root.op, partials[i], partials[i + half]) for i in range(half)] + odd
        values = partials[0]
        width = self.elements
        while width > 1:
            width //= 2
            low, high = ([self._lanes(value, start, width) for value in values] for start in (0, width))
            values = self._combine(root.op, low, high)
        if root.op in self.rests:  # the end of the tile, that the loop leaves out
            (source,) = root.op.operands
            rest = constant(self.rests[root.op], element_of(source.type), vector_width(values[0].type))
            values = self._combine(root.op, values, [rest])
        if end is not None and root in evens:
            assert self.axis is not None
            left_out = self.em.op("i1", f"icmp ult {end}, {self.nest.shape[self.axis]}")
            (value,), (whole,) = values, self._combine(root.op, values, [self._lanes(evens[root], 0, 1)])
            values = [self.em.select(left_out, whole, value)]
        return values

    def _lanes(self, value: Val, start: int, count: int) -> Val:
        if count == 1:
            return self.em.extract(value, start)
        return self.em.shuffle(value, None, range(start, start + count))

    def _combine(self, op: Operation, a: Sequence[Val], b: Sequence[Val]) -> list[Val]:
        """Emits a reduction's region on two sets of values."""
        return self.regions.apply(op.body, [*a, *b])

    # ---- scans ----

    def scan(self, root: Scan, bases: dict[int, Place], point: Index) -> None:
        """Writes one vector of a scan and leaves its last value in the accumulators."""
        axis = self.axis
        assert axis is not None
        outer = tuple(place for position, place in enumerate(point) if position != axis)
        reverse = bool(attribute(root.op, "reverse"))
        values = [self.ev.vector_of(operand, point) for operand in root.op.operands]
        slots = [self.accumulators[root, outer, 0, number] for number in range(len(values))]
        with self.em.into(self.ev.frames[-1]):
            if axis == self.blocking.lane:
                values = self._scan_lanes(root.op, values, reverse)
            carried = [
                self.em.load(value.type, slot, _alignment(value.type)) for value, slot in zip(values, slots, strict=True)
            ]
            place = point[axis]
            if place.base is not None:
                start = self.nest.shape[axis] - self.blocking.tile[axis] if reverse else 0
                first = self.em.op("i1", f"icmp eq i64 {place.base}, {start}")
                combined = self._combine(root.op, carried, values)
                values = [self.em.select(first, own, both) for own, both in zip(values, combined, strict=True)]
            for buffer, slot, value in zip(root.into, slots, values, strict=True):
                self.ev.write(buffer, point, value)
                following = value
                if axis == self.blocking.lane and self.width > 1:
                    following = self.em.shuffle(value, None, [0 if reverse else self.width - 1] * self.width)
                self.em.store(following, slot, _alignment(following.type))

    def _scan_lanes(self, op: Operation, values: list[Val], reverse: bool) -> list[Val]:
        """Scans within a vector in log2(width) steps (Hillis and Steele)."""
        width, distance = self.width, 1
        while distance < width:
            if reverse:
                source = [min(lane + distance, width - 1) for lane in range(width)]
                takes = [lane + distance < width for lane in range(width)]
            else:
                source = [max(lane - distance, 0) for lane in range(width)]
                takes = [lane >= distance for lane in range(width)]
            moved = [self.em.shuffle(value, None, source) for value in values]
            combined = self._combine(op, moved, values)
            chosen = Val(f"<{width} x i1>", "<" + ", ".join(f"i1 {str(take).lower()}" for take in takes) + ">")
            values = [self.em.select(chosen, both, own) for both, own in zip(combined, values, strict=True)]
            distance *= 2
        return values


def _alignment(kind: str) -> int:
    return 64 if kind.startswith("<") else 8


def _identity(op: Operation) -> int | float | None:
    """Returns what a reduction can start from without changing its result, or None."""
    name = combine_name(op)
    source, *_ = op.operands
    element = element_of(source.type)
    if name is None:
        return {"max": -math.inf, "min": math.inf}.get(extremum_of(op) or "") if isinstance(element, FloatType) else None
    if isinstance(element, FloatType):
        nan, inf = math.nan, math.inf
        floats = {"addf": -0.0, "mulf": 1.0, "maxnumf": nan, "minnumf": nan, "maximumf": -inf, "minimumf": inf}
        return floats.get(name.removeprefix("arith."))
    if element == I1:
        return {"andi": 1, "ori": 0, "xori": 0}.get(name.removeprefix("arith."))
    low, high = -(1 << bit_width(element) - 1), (1 << bit_width(element) - 1) - 1
    ints = {"addi": 0, "muli": 1, "andi": -1, "ori": 0, "xori": 0, "maxsi": low, "minsi": high, "maxui": 0, "minui": -1}
    return ints.get(name.removeprefix("arith."))
