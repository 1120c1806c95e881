"""Emits loop nests: vectors along the lane axis, several per iteration, every root evaluated at every place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from kernelpack.backends.cpu.emit.atomics import emit_atomic
from kernelpack.backends.cpu.emit.blocking import STRAIGHT, blocking_of
from kernelpack.backends.cpu.emit.elementwise import Lowering
from kernelpack.backends.cpu.emit.evaluate import Evaluator
from kernelpack.backends.cpu.emit.messages import as_printed, emit_assert, emit_check, emit_print
from kernelpack.backends.cpu.emit.operand import end_along_k, steps_until, write_operand
from kernelpack.backends.cpu.emit.places import Index, Place, at_lane
from kernelpack.backends.cpu.emit.reductions import Reductions
from kernelpack.backends.cpu.emit.regions import Regions
from kernelpack.backends.cpu.emit.reloads import evaluate_in_order, reloads
from kernelpack.backends.cpu.emit.streaming import ask_for_rows
from kernelpack.backends.cpu.emit.transpose import turn
from kernelpack.backends.cpu.facts.features import Level
from kernelpack.backends.cpu.plan.buffers import K_STEP, Buffer, OperandBuffer
from kernelpack.backends.cpu.plan.sinks import (
    Atomic,
    Histogram,
    Map,
    Materialize,
    Message,
    Prefetch,
    Reduce,
    Root,
    Scan,
    Store,
    operation_of,
    turned_axis,
    values_of,
)
from kernelpack.backends.cpu.plan.stops import adds
from kernelpack.backends.cpu.plan.tile_program import Nest, TileProgram
from kernelpack.ir.core import Value
from kernelpack.ir.dialect import attribute, operand, optional_operand
from kernelpack.ir.types import element_of
from kernelpack.llvm.text import Val, literal


class NestEmitter:
    """Writes a nest at the emitter's place; scalar results of reductions go to the scalars of `regions`. `loaded` are scalars that were loaded
    from where nothing was written since, and their addresses."""

    def __init__(
        self,
        nest: Nest,
        program: TileProgram,
        lowering: Lowering,
        level: Level,
        regions: Regions,
        storage: dict[int, Val],
        program_id: Sequence[Val],
        loaded: Mapping[Value, Val],
    ) -> None:
        self.nest = nest
        self.regions = regions
        self.program_id = program_id
        self.em = lowering.em
        self.lowering = lowering
        self.scalars = regions.scalars
        reloaded = reloads(nest, program, loaded, self.em.features)
        self.blocking = blocking_of(nest, level, program.plain, program.observed, bool(reloaded))
        self.lane, self.width, self.reduced = self.blocking.lane, self.blocking.width, self.blocking.reduced
        written = [root for root in nest.roots if isinstance(root, Materialize)]
        fresh = frozenset((root.value, id(root.into)) for root in written)
        self.ev = Evaluator(
            program, lowering, self.scalars, storage, self.em.sink, self.width, fresh, self.blocking.tile[self.lane]
        )
        self.ev.reloaded = reloaded
        self.reductions = Reductions(nest, self.blocking, self.ev, regions)

    # ---- loops ----

    def run(self) -> None:
        for root in self.nest.roots:
            if isinstance(root, Histogram):
                zero, size = Val("i8", "0"), Val("i64", str(root.into.bytes))
                arguments = [self.ev.storage[id(root.into)], zero, size, Val("i1", "false")]
                self.em.call("void", "llvm.memset.p0.i64", arguments)
        self.ends = self._ends()
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
        extent, step = self.blocking.shape[axis], self.blocking.tile[axis]
        whole = extent - extent % step
        end = self.ends.get(axis)
        evens: dict[Root, Val] = {}
        if end is not None:
            evens = self._evens(axis, bases)
            end = self._end_before(evens, end, extent)
        if begins_reduction:
            self.reductions.start(bases)
        reverse = any(isinstance(r, Scan) and attribute(r.op, "reverse") for r in self.nest.roots) and axis == self.reduced
        if whole == step:
            self._loops(rest, {**bases, axis: Place(end=whole)})
        elif (
            end is not None
            and axis in self.blocking.stops
            and not rest
            and self._is_one_row(bases)
            and whole // step <= STRAIGHT
        ):
            for offset in self._steps(end, whole // step, step):
                self._loops(rest, {**bases, axis: Place(offset=offset, end=offset + step)})
        elif end is not None and axis in self.blocking.stops:
            self._loops_to(end, axis, rest, bases)
        elif whole:
            with self._loop(whole if end is None else end, step, reverse) as place:
                self._loops(rest, {**bases, axis: replace(place, end=whole)})
        if whole < extent:
            self._loops(rest, {**bases, axis: Place(offset=whole, end=extent)})
        if end is not None:
            self._fill(axis, bases, evens, end)
        if begins_reduction:
            self.reductions.finish(bases, end, evens)

    @staticmethod
    def _is_one_row(bases: dict[int, Place]) -> bool:
        """Whether no loop is around: what straight code keeps stays in registers for the next nest."""
        return all(place.base is None for place in bases.values())

    def _steps(self, end: Val, count: int, step: int) -> Iterator[int]:
        """Yields 0, step, ... as often as `count` says, and writes after each what leaves where the next one is not below `end`."""
        em, ev = self.em, self.ev
        done = em.new_label("done")
        for number in range(count):
            yield number * step
            if number == 0:  # what is computed later may not be
                memo, addresses = dict(ev.memo), dict(ev.addresses)
            with em.into(ev.frames[-1]):
                if number < count - 1:
                    following = em.new_label("next")
                    em.branch(em.op("i1", f"icmp ule {end}, {(number + 1) * step}"), done, following)
                    em.label(following)
                else:
                    em.jump(done)
                    em.label(done)
        ev.memo, ev.addresses = memo, addresses

    def _loops_to(self, end: Val, axis: int, rest: list[int], bases: dict[int, Place]) -> None:
        """Writes a loop that stops at `end`: iterations in which the bound holds everywhere, which need no masks, and others."""
        em, extent, step, stop = self.em, self.blocking.shape[axis], self.blocking.tile[axis], self.blocking.stops[axis]
        with em.into(self.ev.frames[-1]):
            within = steps_until(self.ev, stop.bound, step, extent // step, whole=True)
            within = em.binary("mul", within, literal(step, "i64"))
            some, more = em.op("i1", f"icmp ne {within}, 0"), em.op("i1", f"icmp ult {within}, {end.name}")
        with self.ev.when(some), self._loop(within, step, False) as place:
            self.ev.holding[str(place.base)] = stop.bound
            self._loops(rest, {**bases, axis: replace(place, end=extent)})
        if step > 1 or stop.evens:
            with self.ev.when(more), self._loop(end, step, False, first=within) as place:
                self._loops(rest, {**bases, axis: replace(place, end=extent)})

    def _ends(self) -> dict[int, Val]:
        """Returns how far the nest has to go along axes where that is known when it runs: to the end of what products read, or to where
        there is nothing left to do."""
        ends = {}
        for axis, stop in self.blocking.stops.items():
            extent, step = self.blocking.shape[axis], self.blocking.tile[axis]
            if extent > step and extent % step == 0:
                with self.em.into(self.ev.frames[-1]):
                    steps = steps_until(self.ev, stop.bound, step, extent // step)
                    ends[axis] = self.em.binary("mul", steps, literal(step, "i64"))
        return ends or self._ends_of_operands()

    def _evens(self, axis: int, bases: dict[int, Place]) -> dict[Root, Val]:
        """Returns a vector of what roots take after the place where a nest stops along its lanes: all of that is one value."""
        stop = self.blocking.stops.get(axis)
        if stop is None or not stop.evens:
            return {}
        extent = self.blocking.shape[axis]
        (last,) = self.blocking.points({**bases, axis: Place(offset=extent - self.width, end=extent)})
        return {root: self._evaluate(values_of(root)[0], last) for root in stop.evens}

    def _end_before(self, evens: dict[Root, Val], end: Val, extent: int) -> Val:
        """Returns where a nest stops: where what follows would change a sum it does not."""
        em = self.em
        with em.into(self.ev.frames[-1]):
            for root, vector in evens.items():
                if isinstance(root, Reduce) and adds(root.op):
                    one = em.extract(vector, 0) if self.width > 1 else vector
                    (two,) = self.regions.apply(root.op.body, [one, one])
                    compared = ("icmp", "eq") if one.type.startswith("i") else ("fcmp", "ueq")
                    end = em.select(em.compare(*compared, two, one), end, literal(extent, "i64"))
        return end

    def _fill(self, axis: int, bases: dict[int, Place], evens: dict[Root, Val], end: Val) -> None:
        """Writes the one value to the rest of buffers."""
        written = [root for root in evens if isinstance(root, Materialize)]
        if not written:
            return
        extent = self.blocking.shape[axis]
        with self.em.into(self.ev.frames[-1]):
            left_out = self.em.op("i1", f"icmp ult {end}, {extent}")
        with (
            self.ev.when(left_out),
            self.ev.loop(
                "rest",
                extent - self.width,
                advance=lambda counter: f"sub nsw i64 {counter}, {self.width}",
                ends=lambda counter, following: f"icmp slt i64 {following}, {end.name}",
            ) as place,
        ):
            point, *_ = self.blocking.points({**bases, axis: replace(place, end=extent)})
            for root in written:
                assert isinstance(root.into, Buffer)
                self.ev.write(root.into, point, evens[root])

    def _ends_of_operands(self) -> dict[int, Val]:
        first, *others = (root.into if isinstance(root, Materialize) else None for root in self.nest.roots)
        if not isinstance(first, OperandBuffer) or not all(
            isinstance(other, OperandBuffer) and (other.k_axis, other.depth) == (first.k_axis, first.depth) for other in others
        ):
            return {}
        axis = first.k_axis
        extent, step = self.blocking.shape[axis], self.blocking.tile[axis]
        together = K_STEP * first.pack
        if extent != first.shape[axis] or extent <= together or together % step:
            return {}
        with self.em.into(self.ev.frames[-1]):
            end = end_along_k(self.ev, first, K_STEP)
            return {} if end is None else {axis: self.em.binary("mul", end, literal(first.pack, "i64"))}

    def _loop(self, extent: int | Val, step: int, reverse: bool, first: int | Val = 0) -> AbstractContextManager[Place]:
        """Opens a loop over 0, step, ... below extent (or downwards), or from `first` on below one that is known when it runs."""
        if isinstance(extent, Val):
            return self.ev.loop(
                "nest",
                first,
                advance=lambda counter: f"add nsw i64 {counter}, {step}",
                ends=lambda counter, following: f"icmp uge i64 {following}, {extent.name}",
            )
        start, last = (extent - step, 0) if reverse else (0, extent - step)
        return self.ev.loop(
            "nest",
            start,
            advance=lambda counter: f"add nsw i64 {counter}, {-step if reverse else step}",
            ends=lambda counter, following: f"icmp eq i64 {counter}, {last}",
        )

    # ---- one iteration ----

    def _iteration(self, bases: dict[int, Place]) -> None:
        points = self.blocking.points(bases)
        writers: list[tuple[Root, Callable[[], None]]] = []
        if self.ev.reloaded:
            evaluate_in_order(self.ev, self.nest.roots, points)
        for root in self.nest.roots:
            with self.em.work_on(operation_of(root)):
                match root:
                    case Reduce():
                        for point in points:
                            self.reductions.add(root, bases, point)
                    case Scan():
                        self.reductions.scan(root, bases, points[0])
                    case Atomic():
                        for point in points:
                            self._atomic(root, point)
                    case Map():
                        self._map(root, points[0])
                    case Histogram():
                        self._count(root, points[0])
                    case Message():
                        self._message(root, points[0])
                    case Prefetch():
                        for point in points:
                            ask_for_rows(self.ev, root.op, point)
                    case Store() | Materialize():
                        value = operand(root.op, "value") if isinstance(root, Store) else root.value
                        source = root.source if isinstance(root, Materialize) else None
                        vectors = [self._evaluate(value, point, source) for point in points]
                        if isinstance(root, Store):  # addresses and masks are evaluated before anything is written
                            for point in points:
                                if self.blocking.turned is None:
                                    self._evaluate_access(root, point)
                        writers.append((root, self._writer(root, points, vectors)))
        for root, write in writers:
            with self.em.work_on(operation_of(root)):
                write()

    def _evaluate(self, value: Value, point: Index, source: Buffer | None = None) -> Val:
        """Returns the elements at a point: a vector of the nest's width, or a scalar if that is 1."""
        if source is not None:
            return self.ev.vector(self.ev.read(source, point), value.type)
        return self.ev.vector_of(value, point)

    def _evaluate_access(self, root: Store, point: Index) -> None:
        self.ev.evaluate(operand(root.op, "ptr"), point)
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
            if root.op.name == "cpu.check_access":
                emit_check(em, root.op, vectors, self.width)
                return
            values = [
                as_printed(self.lowering, value, operand) for value, operand in zip(vectors, root.op.operands, strict=True)
            ]
            place = [self.ev.position(one, "i32") for one in point]
            emit_print(em, root.op, values, place, self.nest.shape, self.program_id)
