"""Emits products of few rows with k in the lanes: both operands are read in the order in which they lie, and nothing is turned.

Each accumulator belongs to one element of the result. Where k ends, a tree of shuffles and additions turns as many accumulators as
a register has lanes into one register of sums. While a block of columns is multiplied, the next one is asked for. A single row takes few
columns at a time, each with several accumulators: memory gives long pieces of few rows sooner than short ones of many.
"""

from __future__ import annotations

from kernelpack.backends.cpu.emit.elements import from_memory, memory_type, register_type
from kernelpack.backends.cpu.emit.places import Place
from kernelpack.backends.cpu.emit.product_in_lanes import BIAS, ProductEmitter, compute_type
from kernelpack.backends.cpu.emit.streaming import ask_for
from kernelpack.backends.cpu.facts.features import Level
from kernelpack.backends.cpu.plan.buffers import InPlace, Operand, OperandBuffer
from kernelpack.backends.cpu.plan.plan_product import block_along_k
from kernelpack.ir.types import bit_width, element_of, is_float
from kernelpack.llvm.text import Val, literal, vector_width

_UNROLL = 2
_QUAD = 4
"""How many neighbours of the result a block has at least."""


class LanesAlongK(ProductEmitter):
    """A product whose operands both lie along k; `a` is packed."""

    def divide(self, level: Level) -> tuple[OperandBuffer, int, int]:
        packed = self.dot.a
        assert isinstance(packed, OperandBuffer)
        width = level.lanes(bit_width(compute_type(packed)))
        self.rows, self.columns, self.parts = block_along_k(self.dot.out.shape[-2], level)
        return packed, width, min(self.columns, width)

    def matrix(self, bases: dict[int, Place]) -> None:
        rank = len(self.dot.out.shape)
        rows, columns = self.dot.out.shape[-2:]
        biased = self.packed.pack == 4 and not self.level.is_arm
        self.starts = self._starts(bases) if biased else None
        rows_end, columns_end = self.until(rank - 2, rows, self.rows), self.until(rank - 1, columns, self.columns)
        with self.loop(columns_end, self.columns) as column, self.loop(rows_end, self.rows) as row:
            self._block({**bases, rank - 2: row, rank - 1: column})

    def _starts(self, bases: dict[int, Place]) -> Val:
        """Returns memory with what the sums of each row start at. Bytes of b become unsigned as they are read, 128 greater: what the elements of
        a row add too much, 128 times each, is taken off before."""
        em, rows, size = self.em, self.dot.out.shape[-2], self.width * bit_width(self.compute) // 8
        starts = em.alloca(f"[{rows * size} x i8]", "starts")
        total = em.alloca(self.kind, "start")
        with self.loop(rows, 1) as row:
            with em.into(self.ev.frames[-1]):
                em.store(literal(0, self.kind), total, 64)
            first = self._start(self.dot.a, bases, row)
            with self.loop(self.units, self.width) as unit, em.into(self.ev.frames[-1]):
                added = self.multiply_add(
                    literal(BIAS, self.kind), self._vector(self.dot.a, first, unit), em.load(self.kind, total, 64)
                )
                em.store(added, total, 64)
            with em.into(self.ev.frames[-1]):
                start = em.binary("sub", literal(0, self.kind), em.load(self.kind, total, 64))
                em.store(start, self.along_k(starts, row, size), 64)
        return starts

    def _block(self, bases: dict[int, Place]) -> None:
        """Computes rows x columns sums over all of k, and writes as many at a time as a register has lanes."""
        em, frame = self.em, self.ev.frames[-1]
        *batch, row, column = bases.values()
        results = self.rows * self.columns
        slots = [em.alloca(self.kind, "acc") for _ in range(results * self.parts)]
        with em.into(frame):
            for number, slot in enumerate(slots):
                start = literal(0, self.kind)
                if self.starts is not None and number < results:
                    size = self.width * bit_width(self.compute) // 8
                    start = em.load(self.kind, self.along_k(self.starts, row.plus(number // self.columns), size), 64)
                em.store(start, slot, 64)
        self._add_products(slots, bases)
        neighbours, together = min(self.columns, self.width), min(results, self.width)
        merged = em.alloca(register_type(self.compute, together), "sums")
        for first in range(0, results, together):
            with em.into(frame):
                sums = [self._sum(slots[number::results]) for number in range(first, first + together)]
                em.store(self._merge(sums), merged, 64)
            for lane in range(0, together, neighbours):
                down, along = divmod(first + lane, self.columns)
                place = column.plus(along)
                with em.into(frame):
                    part = em.offset(merged, lane * bit_width(self.compute) // 8)
                index = (*batch, row.plus(down), Place(place.base, place.offset, place.depth, True))
                self.write(part, register_type(self.compute, neighbours), index)

    def _add_products(self, slots: list[Val], bases: dict[int, Place]) -> None:
        em = self.em
        *_, row, column = bases.values()
        rows = [self._start(self.dot.a, bases, row.plus(number)) for number in range(self.rows)]
        columns = [self._start(self.dot.b, bases, column.plus(number)) for number in range(self.columns)]
        following = self._following(columns) if isinstance(self.dot.b, InPlace) else []
        step = min(max(_UNROLL, self.parts) * self.width, self.packed.k_units)
        with self.loop(self.units, step) as place, em.into(self.ev.frames[-1]):
            sums = [em.load(self.kind, slot, 64) for slot in slots]
            for offset in range(0, step, self.width):
                unit = place.plus(offset)
                a = [self._vector(self.dot.a, start, unit) for start in rows]
                b = [self._vector(self.dot.b, start, unit) for start in columns]
                for start in following:
                    ask_for(em, self.along_k(start, unit, self._unit_bytes(self.dot.b)))
                if self.starts is not None:
                    b = [em.binary("xor", vector, literal(BIAS, vector.type)) for vector in b]
                    pairs = [(y, x) for x in a for y in b]
                else:
                    pairs = [(x, y) for x in a for y in b]
                first = offset // self.width % self.parts * len(pairs)
                for number, (x, y) in enumerate(pairs, first):
                    sums[number] = self.multiply_add(x, y, sums[number])
            for total, slot in zip(sums, slots, strict=True):
                em.store(total, slot, 64)

    def _following(self, columns: list[Val]) -> list[Val]:
        """Returns where the next block's columns begin, which are as far apart as these."""
        em = self.em
        with em.into(self.ev.frames[-1]):
            first, second = (em.cast("ptrtoint", column, "i64") for column in columns[:2])
            distance = em.binary("mul", em.binary("sub", second, first), literal(self.columns, "i64"))
            return [em.offset(column, distance) for column in columns]

    def _start(self, operand: Operand, bases: dict[int, Place], other: Place) -> Val:
        """Returns where an operand's elements along k begin."""
        if isinstance(operand, InPlace):
            return self.in_place(operand, bases, other, Place())
        assert isinstance(operand, OperandBuffer)
        with self.em.into(self.ev.frames[-1]):
            return self.operand_start(operand, bases, other)

    def _unit_bytes(self, operand: Operand) -> int:
        """Returns the bytes in memory of what an operand has in a lane."""
        size = self.packed.unit_bytes
        return size if not isinstance(operand, InPlace) else bit_width(element_of(operand.value.type)) // 8 * self.packed.pack

    def _vector(self, operand: Operand, start: Val, unit: Place) -> Val:
        """Loads a register of neighbours along k, as the product takes them."""
        size = self._unit_bytes(operand)
        address = self.along_k(start, unit, size)
        if size == self.packed.unit_bytes:
            return self.em.load(self.unit_vector(), address, size)
        assert isinstance(operand, InPlace)
        element = element_of(operand.value.type)
        loaded = self.em.load(memory_type(element, self.width), address, size)
        return self.lowering.convert(from_memory(self.em, loaded, element), element, self.compute)

    def _sum(self, slots: list[Val]) -> Val:
        """Returns the sum of vectors in memory, lane by lane."""
        first, *others = (self.em.load(self.kind, slot, 64) for slot in slots)
        for other in others:
            first = self._plus(first, other)
        return first

    def _merge(self, vectors: list[Val]) -> Val:
        """Returns the sum of each vector's lanes, in order; there are at most as many vectors as lanes.

        Vectors with more lanes than there are vectors are halved. Then two vectors become one of twice as many runs, half as long: runs
        longer than a quad side by side, others within each quad.
        """
        while (width := vector_width(vectors[0].type)) > len(vectors):
            low, high = list(range(width // 2)), list(range(width // 2, width))
            vectors = [self._plus(self.em.shuffle(x, x, low), self.em.shuffle(x, x, high)) for x in vectors]
        quad = min(_QUAD, width)
        quads = width // quad
        vectors = [vectors[number % quads * quad + number // quads] for number in range(width)]  # sums come out in order
        run = width
        while len(vectors) > 1:
            block = width if run > quad else quad
            vectors = [self._fold(x, y, run, block) for x, y in zip(vectors[::2], vectors[1::2], strict=True)]
            run //= 2
        return vectors[0]

    def _fold(self, x: Val, y: Val, run: int, block: int) -> Val:
        """Adds the halves of every run of lanes. A block of the result has what was a block of x in front of what was one of y."""
        width = vector_width(x.type)
        low = [
            vector + first + lane
            for start in range(0, width, block)
            for vector in (0, width)
            for first in range(start, start + block, run)
            for lane in range(run // 2)
        ]
        return self._plus(*(self.em.shuffle(x, y, [lane + half for lane in low]) for half in (0, run // 2)))

    def _plus(self, x: Val, y: Val) -> Val:
        return self.em.binary(f"fadd {self.lowering.flags}".strip() if is_float(self.compute) else "add", x, y)
