"""Emits matrix products: a block of accumulators stays in registers while k runs over packed operands, then c is added.

The scheme is the usual one of high-performance BLAS (Goto and van de Geijn, 2008): one operand contributes vectors along the
lanes, the other one element broadcast to all lanes, and every accumulator is read and written once. product_along_k.py has the scheme
for products of few rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from kernelpack.backends.cpu.emit.byte_products import MULTIPLY_PAIRS, by_lanes
from kernelpack.backends.cpu.emit.elements import register_type
from kernelpack.backends.cpu.emit.elementwise import Lowering
from kernelpack.backends.cpu.emit.evaluate import Evaluator
from kernelpack.backends.cpu.emit.operand import converted_to, end_along_k, operand_address, steps_until
from kernelpack.backends.cpu.emit.places import FIRST, Index, Place, Uniform
from kernelpack.backends.cpu.facts.features import Level
from kernelpack.backends.cpu.plan.buffers import Evaluated, InPlace, OperandBuffer
from kernelpack.backends.cpu.plan.tile_program import Dot, TileProgram
from kernelpack.ir.core import Value
from kernelpack.ir.dialect import operand
from kernelpack.ir.types import BF16, F32, I32, Type, bit_width, element_of, is_float, is_int
from kernelpack.llvm.text import Val, literal, suffix, vector_type

_UNROLL_K = 4
BIAS = int.from_bytes(bytes([128] * 4), "little", signed=True)
"""A unit of four biased zeros."""
_GROUP = 8
"""How many blocks of rows meet a panel before the next panel's turn: few enough that they stay in the first cache beside it."""

Factor = OperandBuffer | Evaluated
"""The operand that says what elements become."""

Vectors = Callable[[Place], list[Val]]
"""Gives, for a unit of k, the vectors of a block."""
Ones = Callable[[Place], list[Val]]
"""Gives, for a unit of k, the addresses of the elements that each row broadcasts."""


def rows_at_a_time(extent: int, level: Level) -> int:
    """Returns how many of `extent` rows a block has: as many as stay in registers, or fewer where blocks come out equal so."""
    blocks = -(-extent // level.rows)
    return -(-extent // blocks)


def compute_type(packed: Factor) -> Type:
    """Returns what a product with this operand is summed in."""
    return F32 if packed.element == BF16 else I32 if is_int(packed.element) else packed.element


class ProductEmitter(ABC):
    """What writes a product at the end of the emitter's lines. `unwritten` says of buffers, by id, whether they stand for zeros as yet."""

    def __init__(
        self,
        dot: Dot,
        program: TileProgram,
        lowering: Lowering,
        level: Level,
        scalars: dict[Value, Val],
        storage: dict[int, Val],
        unwritten: Mapping[int, Val],
    ) -> None:
        self.dot = dot
        self.unwritten = unwritten
        self.em = lowering.em
        self.lowering = lowering
        self.level = level
        self.packed, self.width, results = self.divide(level)
        self.compute = compute_type(self.packed)
        self.kind = register_type(self.compute, self.width)
        self.ev = Evaluator(program, lowering, scalars, storage, self.em.lines, results)

    @abstractmethod
    def divide(self, level: Level) -> tuple[Factor, int, int]:
        """Decides which blocks are computed at a time. Returns the operand that says what elements become, how many lanes the inner
        loop's registers have, and how many neighbours of the result are written at a time."""

    @abstractmethod
    def matrix(self, bases: dict[int, Place]) -> None:
        """Writes the product of two matrices; `bases` says which of a batch."""

    def run(self) -> None:
        self.units = self._units()
        self._over_batch(list(range(len(self.dot.out.shape) - 2)), {})

    def until(self, axis: int, extent: int | Val, step: int) -> int | Val:
        """Returns how far along an axis of the result a loop in steps has to go: to an extent, or to where nothing more is looked at."""
        bound = self.dot.ends.get(axis)
        if bound is None or extent == step or not all(value in self.ev.scalars for value, _ in bound.terms):
            return extent
        shape = self.dot.out.shape[axis]
        with self.em.into(self.ev.frames[-1]):
            end = steps_until(self.ev, bound, 1, shape)
            most = extent if isinstance(extent, Val) else literal(extent, "i64")
            return end if extent == shape else self.em.call("i64", "llvm.smin.i64", [end, most])

    def most(self, group: int, first: Place, end: int | Val) -> int | Val:
        """Returns how much of a group there is from `first` on: the last group may be shorter."""
        if isinstance(end, int) and end % group == 0:
            return group
        with self.em.into(self.ev.frames[-1]):
            left = end if isinstance(end, Val) else literal(end, "i64")
            if first.base is not None:
                left = self.em.binary("sub", left, Val("i64", str(first.base)))
            return self.em.call("i64", "llvm.umin.i64", [left, literal(group, "i64")])

    def _units(self) -> int | Val:
        """Returns how many units of k there are before the first one from which on all are zero; at least one."""
        with self.em.into(self.ev.frames[-1]):
            return end_along_k(self.ev, self.packed, 1) or self.packed.k_units

    def _over_batch(self, axes: list[int], bases: dict[int, Place]) -> None:
        if not axes:
            self.matrix(bases)
            return
        with self.loop(self.dot.out.shape[axes[0]], 1) as place:
            self._over_batch(axes[1:], {**bases, axes[0]: place})

    def loop(self, extent: int | Val, step: int, first: int | Val = 0) -> AbstractContextManager[Place]:
        """Opens a loop over 0, step, ... below extent, or from `first` on."""
        if extent == step:
            return nullcontext(Place())
        end = extent.name if isinstance(extent, Val) else extent
        return self.ev.loop(
            "tile",
            first=first,
            advance=lambda counter: f"add nuw nsw i64 {counter}, {step}",
            ends=lambda counter, following: f"icmp uge i64 {following}, {end}",
        )

    def operand_start(self, operand: OperandBuffer, bases: dict[int, Place], other: Place) -> Val:
        """Returns the address of the first element along k in a packed operand, at a place along its other axis."""
        point = [bases.get(axis, FIRST) for axis in range(len(operand.shape))]
        point[operand.other_axis], point[operand.k_axis] = other.one(), Place()
        return operand_address(self.ev, operand, tuple(point))

    def in_place(self, source: InPlace, bases: dict[int, Place], row: Place, k: Place) -> Val:
        """Returns where in global memory an element of an operand is."""
        rank = len(source.axes)
        point = [bases.get(axis, FIRST) for axis in range(rank)]
        point[source.k_axis], point[source.other_axis] = k, row
        index = [FIRST] * rank
        for axis, loaded in enumerate(source.axes):
            index[loaded] = point[axis]
        pointer = self.ev.evaluate(operand(source.load, "ptr"), tuple(index))
        assert isinstance(pointer, Uniform)
        return pointer.val

    def sum_of(self, outer: Place, inner: Place) -> Place:
        """Returns the place `inner` positions after `outer`, in the loop of `inner`."""
        if outer.base is None or inner.base is None:
            return inner if outer.base is None else outer
        with self.em.into(self.ev.frames[-1]):
            return Place(self.em.op("i64", f"add nuw nsw i64 {outer.base}, {inner.base}").name, 0, inner.depth)

    def along_k(self, start: Val, unit: Place, step: int) -> Val:
        address = start
        if unit.base is not None:
            scaled = self.em.op("i64", f"mul nuw nsw i64 {unit.base}, {step}")
            address = self.em.offset(start, scaled)
        return self.em.offset(address, unit.offset * step)

    def unit(self) -> str:
        return "i32" if self.packed.pack > 1 else register_type(self.packed.element)

    def unit_vector(self) -> str:
        return vector_type(self.unit(), self.width)

    def multiply_add(self, a: Val, b: Val, accumulator: Val) -> Val:
        """Returns accumulator + a * b, summed over the neighbours that share a unit."""
        em, bits = self.em, self.width * 32
        match self.packed.pack:
            case 4:
                return by_lanes(em, a, b, accumulator)
            case 2:
                pairs = vector_type("bfloat" if self.packed.element == BF16 else "i16", 2 * self.width)
                factors = [em.cast("bitcast", a, pairs), em.cast("bitcast", b, pairs)]
                if self.packed.element == BF16:
                    arm, x86 = "aarch64.neon.bfdot.v4f32.v8bf16", f"x86.avx512bf16.dpbf16ps.{bits}"
                    return em.call(self.kind, f"llvm.{arm if self.level.is_arm else x86}", [accumulator, *factors])
                return em.binary("add", accumulator, em.call(self.kind, MULTIPLY_PAIRS[bits], factors))
        if is_float(self.compute):
            return em.call(self.kind, f"llvm.fma.{suffix(self.kind)}", [a, b, accumulator])
        return em.binary("add", accumulator, em.binary("mul", a, b))

    def write(self, sums: Val, kind: str, index: Index) -> None:
        """Writes neighbours of the result, whose sums over this tile's k lie at an address, with c added."""
        em, element = self.em, element_of(self.dot.op.result.type)
        before = self.ev.vector_of(operand(self.dot.op, "c"), index)
        with em.into(self.ev.frames[-1]):
            total = self._add(
                em.load(kind, sums, 64 if kind == self.kind else 16), self._convert(before, element, self.compute)
            )
            result = self._convert(total, self.compute, element)
        self.ev.write(self.dot.out, index, result)

    def _add(self, product: Val, before: Val) -> Val:
        """Adds c last: the sum over this tile's k starts from zero, which rounds less than adding to a long running sum."""
        if before.name in ("splat (float 0x0000000000000000)", "splat (i32 0)", "zeroinitializer"):
            return product
        opcode = f"fadd {self.lowering.flags}".strip() if is_float(self.compute) else "add"
        return self.em.binary(opcode, before, product)

    def _convert(self, value: Val, source: Type, result: Type) -> Val:
        return self.lowering.convert(value, source, result) if is_float(source) else value


class LanesAlongResult(ProductEmitter):
    """A product with one operand in the lanes, from panels or as it is computed, and the other broadcast element by element."""

    def divide(self, level: Level) -> tuple[Factor, int, int]:
        dot = self.dot
        rank = len(dot.out.shape)
        rows_in_lanes = dot.lane_axis == rank - 2
        vector, self.scalar = (dot.a, dot.b) if rows_in_lanes else (dot.b, dot.a)
        assert not isinstance(vector, InPlace), "vectors are read from panels, or computed"
        self.vector = vector
        self.lane, self.other = dot.lane_axis, 2 * rank - 3 - dot.lane_axis
        width = min(level.lanes(bit_width(compute_type(vector))), dot.out.shape[self.lane])
        self.vectors = vector.panel // width
        self.rows = rows_at_a_time(dot.out.shape[self.other], level)
        return vector, width, width

    def matrix(self, bases: dict[int, Place]) -> None:
        rows, lanes, panel = self.dot.out.shape[self.other], self.dot.out.shape[self.lane], self.vector.panel
        left = rows % self.rows
        whole = rows - left
        group = min(whole, _GROUP * self.rows)
        rows_end, lanes_end = self.until(self.other, whole, self.rows), self.until(self.lane, lanes, panel)
        self.starts = self._starts(bases, lanes_end)
        if isinstance(self.vector, Evaluated):
            self._row(bases, lanes_end)
            return
        with (
            self.loop(whole if whole == group else rows_end, group) as first,
            self.loop(lanes_end, panel) as lane,
            self.loop(self.most(group, first, rows_end), self.rows) as within,
        ):
            self._block({**bases, self.lane: lane, self.other: self.sum_of(first, within)}, self.rows)
        if left:
            with self._reaching(whole), self.loop(lanes_end, panel) as lane:
                self._block({**bases, self.lane: lane, self.other: Place(None, whole)}, left)

    def _reaching(self, row: int) -> AbstractContextManager[None]:
        """Opens a branch for a row, and those after it, if any is looked at."""
        end = self.until(self.other, self.dot.out.shape[self.other], 1)
        if not isinstance(end, Val):
            return nullcontext()
        with self.em.into(self.ev.frames[-1]):
            return self.ev.when(self.em.op("i1", f"icmp ugt {end}, {row}"))

    def _row(self, bases: dict[int, Place], lanes_end: int | Val) -> None:
        """Computes the only row: blocks in which a bound along the lanes holds everywhere, whose vectors have no masks, and others."""
        em, ev, panel, lanes = self.em, self.ev, self.vector.panel, self.dot.out.shape[self.lane]
        bases = {**bases, self.other: Place()}
        if not isinstance(lanes_end, Val):
            with self.loop(lanes_end, panel) as lane:
                self._block({**bases, self.lane: lane}, 1)
            return
        bound = self.dot.ends[self.lane]
        with em.into(ev.frames[-1]):
            whole = em.binary("mul", steps_until(ev, bound, panel, lanes // panel, whole=True), literal(panel, "i64"))
            some, more = em.op("i1", f"icmp ne {whole}, 0"), em.op("i1", f"icmp ult {whole}, {lanes_end.name}")
        with ev.when(some), self.loop(whole, panel) as lane:
            ev.holding[str(lane.base)] = bound
            self._block({**bases, self.lane: replace(lane, end=lanes)}, 1)
        with ev.when(more), self.loop(lanes_end, panel, whole) as lane:
            self._block({**bases, self.lane: lane}, 1)

    def _starts(self, bases: dict[int, Place], lanes_end: int | Val) -> Val | None:
        """Returns memory with what the sums of each lane start at; None for zero. Where what is broadcast is biased, it is -128 times the sum of
        the lane's elements along k, the same for all rows."""
        if not (isinstance(self.scalar, OperandBuffer) and self.scalar.biased):
            return None
        em, ev = self.em, self.ev
        starts = em.alloca(f"[{4 * self.dot.out.shape[self.lane]} x i8]", "starts")
        slots = [em.alloca(self.kind, "start") for _ in range(self.vectors)]
        with self.loop(lanes_end, self.vector.panel) as lane:
            with em.into(ev.frames[-1]):
                for slot in slots:
                    em.store(literal(0, self.kind), slot, 64)
            vectors_of = self._vectors({**bases, self.lane: lane})
            with self.loop(self.units, 1) as unit, em.into(ev.frames[-1]):
                bias = em.splat(literal(BIAS, "i32"), self.width)
                for slot, vector in zip(slots, vectors_of(unit), strict=True):
                    em.store(self.multiply_add(bias, vector, em.load(self.kind, slot, 64)), slot, 64)
            with em.into(ev.frames[-1]):
                for number, slot in enumerate(slots):
                    start = em.binary("sub", literal(0, self.kind), em.load(self.kind, slot, 64))
                    em.store(start, self._start_of(starts, lane, number), 4)
        return starts

    def _start_of(self, starts: Val, lane: Place, vector: int) -> Val:
        """Returns where the starts of one vector of a panel are."""
        return self.along_k(starts, lane.plus(vector * self.width), 4)

    def _index(self, bases: dict[int, Place], row: int, vector: int) -> Index:
        places = []
        for axis in range(len(self.dot.out.shape)):
            if axis == self.lane:
                place = bases[axis].plus(vector * self.width)
                places.append(Place(place.base, place.offset, place.depth, self.width > 1))
            elif axis == self.other:
                places.append(bases[axis].plus(row))
            else:
                places.append(bases[axis])
        return tuple(places)

    def _block(self, bases: dict[int, Place], rows: int) -> None:
        """Computes rows x vectors accumulators over all of k."""
        em, ev = self.em, self.ev
        blocks = [(row, vector) for row in range(rows) for vector in range(self.vectors)]
        slots = [em.alloca(self.kind, "acc") for _ in blocks]
        with em.into(ev.frames[-1]):
            for slot, (_, vector) in zip(slots, blocks, strict=True):
                start = literal(0, self.kind)
                if self.starts is not None:
                    start = em.load(self.kind, self._start_of(self.starts, bases[self.lane], vector), 4)
                em.store(start, slot, 64)
        vectors, ones = self._vectors(bases), self._ones(bases, rows)
        step = min(_UNROLL_K, self.vector.k_units) if rows == self.rows else 1  # few rows are left over: short code for them
        with self.loop(self.units, step) as place, em.into(ev.frames[-1]):
            accumulators = [em.load(self.kind, slot, 64) for slot in slots]
            accumulators = self.advance(accumulators, place, step, vectors, ones)
            for accumulator, slot in zip(accumulators, slots, strict=True):
                em.store(accumulator, slot, 64)
        with em.into(ev.frames[-1]):
            self.finish(slots, step)
        for (row, vector), slot in zip(blocks, slots, strict=True):
            self.write(slot, self.kind, self._index(bases, row, vector))

    def advance(self, accumulators: list[Val], place: Place, step: int, vectors: Vectors, ones: Ones) -> list[Val]:
        """Adds so many units of k to every accumulator."""
        for unit in range(step):
            accumulators = self._step(accumulators, place.plus(unit), vectors, ones)
        return accumulators

    def finish(self, slots: list[Val], step: int) -> None:
        """Makes rows of what `advance` left in memory, by so many units at a time."""

    def _ones(self, bases: dict[int, Place], rows: int) -> Ones:
        """Returns a function that gives, for a unit of k, the addresses of the elements that each row broadcasts."""
        operand, size = self.scalar, self.vector.unit_bytes
        if isinstance(operand, OperandBuffer):
            with self.em.into(self.ev.frames[-1]):
                start = self.operand_start(operand, bases, bases[self.other])
            k_step, row_step = (1, operand.row_units) if operand.k_inner else (operand.row_units, 1)

            def packed(unit: Place) -> list[Val]:
                first = self.along_k(start, unit, k_step * size)
                return [self.em.offset(first, row * row_step * size) for row in range(rows)]

            return packed
        assert isinstance(operand, InPlace)
        places = [bases[self.other].plus(row) for row in range(rows)]
        if operand.k_inner:
            starts = [self.in_place(operand, bases, place, Place()) for place in places]
            return lambda unit: [self.along_k(start, unit, size) for start in starts]

        def along_rows(unit: Place) -> list[Val]:
            first = self.in_place(operand, bases, places[0], unit)
            return [self.em.offset(first, row * size) for row in range(rows)]

        return along_rows

    def _vectors(self, bases: dict[int, Place]) -> Vectors:
        """Returns a function that gives, for a unit of k, the vectors of a block: from its panel, or computed."""
        em, ev, operand, size = self.em, self.ev, self.vector, self.vector.unit_bytes
        if isinstance(operand, Evaluated):
            return lambda unit: [self._evaluated(operand, bases, unit, vector) for vector in range(self.vectors)]
        with em.into(ev.frames[-1]):
            panel = self.operand_start(operand, bases, bases[self.lane])

        def loaded(unit: Place) -> list[Val]:
            lanes_at = self.along_k(panel, unit, operand.row_units * size)
            return [
                em.load(self.unit_vector(), em.offset(lanes_at, vector * self.width * size), size)
                for vector in range(self.vectors)
            ]

        return loaded

    def _evaluated(self, operand: Evaluated, bases: dict[int, Place], unit: Place, vector: int) -> Val:
        point = [bases.get(axis, FIRST) for axis in range(len(operand.shape))]
        lane = bases[self.lane].plus(vector * self.width)
        point[operand.other_axis], point[operand.k_axis] = replace(lane, lanes=self.width > 1), unit
        kind = element_of(operand.value.type)
        return converted_to(self.ev, operand, self.ev.vector_of(operand.value, tuple(point)), kind)

    def _step(self, accumulators: list[Val], unit: Place, vectors_of: Vectors, ones: Ones) -> list[Val]:
        """Adds one unit of k (an element, a pair or a quad) to every accumulator."""
        em = self.em
        vectors = vectors_of(unit)
        size = self.vector.unit_bytes
        result: list[Val] = []
        for row, address in enumerate(ones(unit)):
            spread = em.splat(em.load(self.unit(), address, size), self.width)
            for vector in range(self.vectors):
                accumulator = accumulators[row * self.vectors + vector]
                result.append(self.multiply_add(spread, vectors[vector], accumulator))
        return result
