"""Emits loop nests: vectors along the lane axis, several per iteration, every root evaluated at every place."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import AbstractContextManager

from kernelpack.backends.cpu.atomics import emit_atomic
from kernelpack.backends.cpu.buffers import Buffer, OperandBuffer
from kernelpack.backends.cpu.elements import constant, register_type
from kernelpack.backends.cpu.elementwise import Lowering
from kernelpack.backends.cpu.evaluate import Evaluator
from kernelpack.backends.cpu.levels import Level
from kernelpack.backends.cpu.messages import as_printed, emit_assert, emit_print
from kernelpack.backends.cpu.operand import write_operand
from kernelpack.backends.cpu.places import Index, Place, at_lane
from kernelpack.backends.cpu.regions import Regions, runs_on_vectors
from kernelpack.backends.cpu.roots import (
    ALONE,
    Atomic,
    Histogram,
    Map,
    Materialize,
    Message,
    Reduce,
    Root,
    Scan,
    Store,
    turned_axis,
    values_of,
)
from kernelpack.backends.cpu.tile_program import Nest, TileProgram
from kernelpack.backends.cpu.transpose import turn
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import attribute, optional_operand
from kernelpack.ir.dialects.tt import combine_name
from kernelpack.ir.types import I1, FloatType, bit_width, element_of, is_float
from kernelpack.llvm.text import Val, literal

_UNROLL = 4  # vectors an iteration works on: enough independent chains to hide the latency of an fma
_FEW = 12  # so many constants leave registers for that many vectors
_STRAIGHT = 8  # a domain of this many vectors needs no loop


class NestEmitter:
    """Writes a nest at the emitter's place; scalar results of reductions go to the scalars of `regions`."""

    def __init__(
        self,
        nest: Nest,
        program: TileProgram,
        lowering: Lowering,
        level: Level,
        regions: Regions,
        storage: dict[int, Val],
        program_id: Sequence[Val],
    ) -> None:
        self.nest = nest
        self.regions = regions
        self.program_id = program_id
        self.em = lowering.em
        self.lowering = lowering
        self.level = level
        self.scalars = regions.scalars
        self.lane = nest.lane_axis
        self.reduced = next((root.axis for root in nest.roots if isinstance(root, (Reduce, Scan))), None)
        self.turned = next(
            (turned_axis(root, self.lane) for root in nest.roots if turned_axis(root, self.lane) is not None), None
        )
        self.width = self._width()
        self.tile = self._tile(program)
        written = [root for root in nest.roots if isinstance(root, Materialize)]
        fresh = frozenset((root.value, id(root.into)) for root in written)
        self.ev = Evaluator(program, lowering, self.scalars, storage, self.em.sink, self.width, fresh)
        self.accumulators: dict[tuple[Reduce | Scan, Index, int, int], Val] = {}

    def _width(self) -> int:
        """Returns the number of lanes; a block that is turned has as many rows as lanes."""
        width = min(self.level.lanes(32), self.nest.shape[self.lane])
        for root in self.nest.roots:
            if isinstance(root, (Reduce, Scan, Map)) and not runs_on_vectors(root.op.body):
                width = 1
            if isinstance(root, Map) and root.op.attributes["pack"] > 1:
                width = root.op.attributes["pack"]
            if isinstance(root, Message) and root.op.name == "tt.print":
                width = 1
        if self.turned is not None:
            width = min(width, self.nest.shape[self.turned])
            into = next((r.into for r in self.nest.roots if isinstance(r, Materialize)), None)
            if isinstance(into, OperandBuffer) and into.pack == 2:  # pairs are turned as 32-bit units
                width = min(2 * width, self.nest.shape[self.lane])
        return width

    def _tile(self, program: TileProgram) -> dict[int, int]:
        """Returns how many elements along each axis one iteration covers."""
        shape = self.nest.shape
        tile = dict.fromkeys(range(len(shape)), 1)
        tile[self.lane] = self.width
        for root in self.nest.roots:
            if isinstance(root, Materialize) and isinstance(root.into, OperandBuffer) and root.into.k_axis != self.lane:
                tile[root.into.k_axis] = max(tile[root.into.k_axis], root.into.pack)
        if self.turned is not None:
            into = next((r.into for r in self.nest.roots if isinstance(r, Materialize)), None)
            pairs = isinstance(into, OperandBuffer) and into.pack == 2
            tile[self.turned] = self.width // 2 if pairs else self.width
            return tile
        if any(isinstance(root, ALONE) for root in self.nest.roots):
            return tile
        inner = self.lane if self.reduced is None else self.reduced
        step = tile[inner]
        unroll = _UNROLL if self.reduced is not None or constants_of(self.nest.roots, program.plain) <= _FEW else _UNROLL // 2
        tile[inner] = min(shape[inner], step * max(1, unroll // (1 if inner == self.lane else step)))
        for axis in reversed(range(len(shape))):  # small domains become straight-line code
            points = math.prod(tile.values()) // self.width * (shape[axis] // tile[axis])
            if points <= _STRAIGHT:
                tile[axis] = shape[axis]
        return tile

    # ---- loops ----

    def run(self) -> None:
        for root in self.nest.roots:
            if isinstance(root, Histogram):
                zero, size = Val("i8", "0"), Val("i64", str(root.into.bytes))
                arguments = [self.ev.storage[id(root.into)], zero, size, Val("i1", "false")]
                self.em.call("void", "llvm.memset.p0.i64", arguments)
        axes = list(range(len(self.nest.shape)))
        last = [self.lane] if self.reduced in (None, self.lane) else [self.lane, self.reduced]
        order = [axis for axis in axes if axis not in last] + [axis for axis in last if axis is not None]
        self._loops(order, {})

    def _loops(self, order: list[int], bases: dict[int, Place]) -> None:
        if not order:
            self._iteration(bases)
            return
        axis, *rest = order
        begins_reduction = axis == self.reduced
        extent, step = self.nest.shape[axis], self.tile[axis]
        if begins_reduction:
            self._start_reductions(bases)
        reverse = any(isinstance(r, Scan) and attribute(r.op, "reverse") for r in self.nest.roots) and axis == self.reduced
        if extent == step:
            self._loops(rest, {**bases, axis: Place()})
        else:
            with self._loop(extent, step, reverse) as place:
                self._loops(rest, {**bases, axis: place})
        if begins_reduction:
            self._finish_reductions(bases)

    def _loop(self, extent: int, step: int, reverse: bool) -> AbstractContextManager[Place]:
        """Opens a loop over 0, step, ... below extent (or downwards)."""
        first, last = (extent - step, 0) if reverse else (0, extent - step)
        return self.ev.loop(
            "nest",
            first,
            advance=lambda counter: f"add nsw i64 {counter}, {-step if reverse else step}",
            ends=lambda counter, following: f"icmp eq i64 {counter}, {last}",
        )

    def _points(self, bases: dict[int, Place]) -> list[Index]:
        """Returns the places of one iteration; the lane axis has one place for all lanes."""
        ranges = []
        for axis in range(len(self.nest.shape)):
            step = self.width if axis == self.lane else 1
            lanes = axis == self.lane and self.width > 1
            places = [bases[axis].plus(offset) for offset in range(0, self.tile[axis], step)]
            ranges.append([Place(p.base, p.offset, p.depth, lanes) for p in places])
        return [tuple(point) for point in itertools.product(*ranges)]

    # ---- one iteration ----

    def _iteration(self, bases: dict[int, Place]) -> None:
        points = self._points(bases)
        actions: list[Callable[[], None]] = []
        for root in self.nest.roots:
            match root:
                case Reduce():
                    for point in points:
                        self._accumulate(root, bases, point)
                case Scan():
                    self._scan_step(root, bases, points[0])
                case Atomic():
                    for point in points:
                        self._atomic(root, point)
                case Map():
                    self._map(root, points[0])
                case Histogram():
                    self._count(root, points[0])
                case Message():
                    self._message(root, points[0])
                case Store() | Materialize():
                    value = root.op.operands[1] if isinstance(root, Store) else root.value
                    source = root.source if isinstance(root, Materialize) else None
                    vectors = [self._evaluate(value, point, source) for point in points]
                    if isinstance(root, Store):  # addresses and masks are evaluated before anything is written
                        for point in points:
                            if self.turned is None:
                                self._evaluate_access(root, point)
                    actions.append(self._writer(root, points, vectors))
        for action in actions:
            action()

    def _evaluate(self, value: Value, point: Index, source: Buffer | None = None) -> Val:
        """Returns the elements at a point: a vector of the nest's width, or a scalar if that is 1."""
        if source is not None:
            return self.ev.vector(self.ev.read(source, point), value.type)
        return self.ev.vector_of(value, point)

    def _evaluate_access(self, root: Store, point: Index) -> None:
        self.ev.evaluate(root.op.operands[0], point)
        mask = optional_operand(root.op, "mask")
        if mask is not None:
            self.ev.evaluate(mask, point)

    def _writer(self, root: Store | Materialize, points: list[Index], vectors: list[Val]) -> Callable[[], None]:
        def write() -> None:
            with self.em.into(self.ev.frames[-1]):
                if isinstance(root, Materialize) and isinstance(root.into, OperandBuffer):
                    write_operand(self.ev, root.into, element_of(root.value.type), self.lane, points, vectors)
                    return
                targets, values = points, vectors
                if turned_axis(root, self.lane) is not None:
                    targets, values = turn(self.em, points, vectors, self.lane, turned_axis(root, self.lane) or 0)
                for point, vector in zip(targets, values, strict=True):
                    if isinstance(root, Store):
                        self.ev.store(root.op, point, vector, lanes=any(place.lanes for place in point))
                    else:
                        assert isinstance(root.into, Buffer)
                        self.ev.write(root.into, point, vector)

        return write

    # ---- reductions ----

    def _outer(self, bases: dict[int, Place]) -> list[Index]:
        """Returns the places of one iteration that differ in something other than the reduced axis."""
        assert self.reduced is not None
        placed = {axis: bases.get(axis, Place()) for axis in range(len(self.nest.shape))}
        points = self._points(placed)
        kept: dict[Index, None] = {}
        for point in points:
            kept[tuple(place for axis, place in enumerate(point) if axis != self.reduced)] = None
        return list(kept)

    def _partials(self) -> int:
        """Returns how many independent accumulators a result has."""
        assert self.reduced is not None
        return self.tile[self.reduced] // (self.width if self.reduced == self.lane else 1)

    def _start_reductions(self, bases: dict[int, Place]) -> None:
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

    def _accumulate(self, root: Reduce, bases: dict[int, Place], point: Index) -> None:
        axis = self.reduced
        assert axis is not None
        outer = tuple(place for position, place in enumerate(point) if position != axis)
        partial = (point[axis].offset - bases[axis].offset) // (self.width if axis == self.lane else 1)
        values = [self._evaluate(operand, point) for operand in root.op.operands]
        slots = [self.accumulators[root, outer, partial, number] for number in range(len(values))]
        with self.em.into(self.ev.frames[-1]):
            before = [self.em.load(value.type, slot, _alignment(value.type)) for value, slot in zip(values, slots, strict=True)]
            after = self._combine(root.op, before, values)
            if _identity(root.op) is None:
                after = self._unless_first(point[axis], before=values, after=after, step=self.tile[axis])
            for value, slot in zip(after, slots, strict=True):
                self.em.store(value, slot, _alignment(value.type))

    def _unless_first(self, place: Place, before: list[Val], after: list[Val], step: int) -> list[Val]:
        """Returns the elements themselves in a loop's first iteration, where there is nothing to combine them with."""
        if place.base is None:
            return before
        first = self.em.op("i1", f"icmp eq i64 {place.base}, 0")
        return [self.em.select(first, element, combined) for element, combined in zip(before, after, strict=True)]

    def _finish_reductions(self, bases: dict[int, Place]) -> None:
        for root in self.nest.roots:
            if not isinstance(root, Reduce):
                continue
            for outer in self._outer(bases):
                with self.em.into(self.ev.frames[-1]):
                    values = self._merge(root, outer)
                    for buffer, result, value in zip(root.into, root.op.results, values, strict=True):
                        if buffer is not None:
                            self.ev.write(buffer, outer, value)
                        else:
                            self.scalars[result] = value

    def _merge(self, root: Reduce, outer: Index) -> list[Val]:
        """Combines the partial results of one place, and the lanes where they were reduced."""
        count = len(root.op.operands)
        partials: list[list[Val]] = []
        for partial in range(self._partials()):
            slots = [self.accumulators[root, outer, partial, number] for number in range(count)]
            kinds = [register_type(element_of(operand.type), self.width) for operand in root.op.operands]
            partials.append([self.em.load(kind, slot, _alignment(kind)) for kind, slot in zip(kinds, slots, strict=True)])
        while len(partials) > 1:
            half = len(partials) // 2
            partials = [self._combine(root.op, partials[i], partials[i + half]) for i in range(half)]
        values = partials[0]
        width = self.width if self.reduced == self.lane else 1
        while width > 1:
            width //= 2
            low, high = ([self._lanes(value, start, width) for value in values] for start in (0, width))
            values = self._combine(root.op, low, high)
        return values

    def _lanes(self, value: Val, start: int, count: int) -> Val:
        if count == 1:
            return self.em.extract(value, start)
        return self.em.shuffle(value, None, range(start, start + count))

    def _combine(self, op: Operation, a: Sequence[Val], b: Sequence[Val]) -> list[Val]:
        """Emits a reduction's region on two sets of values."""
        return self.regions.apply(op.body, [*a, *b])

    # ---- scans ----

    def _scan_step(self, root: Scan, bases: dict[int, Place], point: Index) -> None:
        """Writes one vector of a scan and leaves its last value in the accumulators."""
        axis = self.reduced
        assert axis is not None
        outer = tuple(place for position, place in enumerate(point) if position != axis)
        reverse = bool(attribute(root.op, "reverse"))
        values = [self._evaluate(operand, point) for operand in root.op.operands]
        slots = [self.accumulators[root, outer, 0, number] for number in range(len(values))]
        with self.em.into(self.ev.frames[-1]):
            if axis == self.lane:
                values = self._scan_lanes(root.op, values, reverse)
            carried = [
                self.em.load(value.type, slot, _alignment(value.type)) for value, slot in zip(values, slots, strict=True)
            ]
            place = point[axis]
            if place.base is not None:
                start = self.nest.shape[axis] - self.tile[axis] if reverse else 0
                first = self.em.op("i1", f"icmp eq i64 {place.base}, {start}")
                combined = self._combine(root.op, carried, values)
                values = [self.em.select(first, own, both) for own, both in zip(values, combined, strict=True)]
            for buffer, slot, value in zip(root.into, slots, values, strict=True):
                self.ev.write(buffer, point, value)
                following = value
                if axis == self.lane and self.width > 1:
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

    # ---- one element, or one group of elements, at a time ----

    def _one(self, vector: Val, lane: int) -> Val:
        return vector if self.width == 1 else self.em.extract(vector, lane)

    def _atomic(self, root: Atomic, point: Index) -> None:
        """Updates memory lane by lane, where the mask allows."""
        vectors = [self._evaluate(operand, point) for operand in root.op.operands]
        for lane in range(self.width):
            place = at_lane(point, lane)

            def keep(old: Val, place: Index = place) -> None:
                if root.into is not None:
                    self.ev.write(root.into, place, old)

            with self.em.into(self.ev.frames[-1]):
                emit_atomic(self.lowering, root.op, [self._one(vector, lane) for vector in vectors], keep)

    def _map(self, root: Map, point: Index) -> None:
        """Runs the region on vectors, or on the neighbours in a vector that make a group."""
        pack = int(root.op.attributes["pack"])
        vectors = [self._evaluate(operand, point) for operand in root.op.operands]
        with self.em.into(self.ev.frames[-1]):
            if pack == 1:
                for buffer, value in zip(root.into, self.regions.apply(root.op.body, vectors), strict=True):
                    self.ev.write(buffer, point, value)
                return
            given = self.regions.apply(root.op.body, [self._one(vector, lane) for vector in vectors for lane in range(pack)])
            for number, value in enumerate(given):
                self.ev.write(root.into[number // pack], at_lane(point, number % pack), value)

    def _count(self, root: Histogram, point: Index) -> None:
        """Counts elements one after the other: equal ones may be neighbours."""
        vectors = [self._evaluate(operand, point) for operand in root.op.operands]
        em, bins = self.em, root.into.shape[0]
        with em.into(self.ev.frames[-1]):
            base = self.ev.storage[id(root.into)]
            for lane in range(self.width):
                value, *mask = (self._one(vector, lane) for vector in vectors)
                wide = em.cast("zext", value, "i64") if value.type != "i64" else value
                counted = em.compare("icmp", "ult", wide, literal(bins, "i64"))
                counted = em.binary("and", counted, mask[0]) if mask else counted
                slot = em.offset(base, em.binary("shl", em.select(counted, wide, literal(0, "i64")), literal(2, "i64")))
                added = em.binary("add", em.load("i32", slot, 4), em.cast("zext", counted, "i32"))
                em.store(added, slot, 4)

    def _message(self, root: Message, point: Index) -> None:
        vectors = [self._evaluate(operand, point) for operand in root.op.operands]
        em = self.em
        with em.into(self.ev.frames[-1]):
            if root.op.name == "tt.assert":
                holds = em.call("i1", f"llvm.vector.reduce.and.v{self.width}i1", vectors) if self.width > 1 else vectors[0]
                emit_assert(em, root.op, holds)
                return
            values = [
                as_printed(self.lowering, value, operand) for value, operand in zip(vectors, root.op.operands, strict=True)
            ]
            place = [self.ev.position(one, "i32") for one in point]
            emit_print(em, root.op, values, place, self.nest.shape, self.program_id)


def _alignment(kind: str) -> int:
    return 64 if kind.startswith("<") else 8


def _identity(op: Operation) -> int | float | None:
    """Returns what a reduction can start from without changing its result, or None."""
    name = combine_name(op)
    element = element_of(op.operands[0].type)
    if name is None:
        return None
    if isinstance(element, FloatType):
        nan, inf = math.nan, math.inf
        floats = {"addf": -0.0, "mulf": 1.0, "maxnumf": nan, "minnumf": nan, "maximumf": -inf, "minimumf": inf}
        return floats.get(name.removeprefix("arith."))
    if element == I1:
        return {"andi": 1, "ori": 0, "xori": 0}.get(name.removeprefix("arith."))
    low, high = -(1 << bit_width(element) - 1), (1 << bit_width(element) - 1) - 1
    ints = {"addi": 0, "muli": 1, "andi": -1, "ori": 0, "xori": 0, "maxsi": low, "minsi": high, "maxui": 0, "minui": -1}
    return ints.get(name.removeprefix("arith."))


def constants_of(roots: Iterable[Root], kept: Container[Value]) -> int:
    """Returns how many different floats other than zero roots take for each element; tiles that are `kept` in buffers are read."""
    found, seen = set(), set[Value]()
    waiting = [value for root in roots for value in values_of(root)]
    while waiting:
        value = waiting.pop()
        op = value.defining_op
        if op is None or value in seen:
            continue
        seen.add(value)
        if op.name == "arith.constant" and is_float(element_of(value.type)):
            found.add(op.attributes["value"])
        waiting += [operand for operand in op.operands if operand not in kept]
    return len(found - {0.0})
