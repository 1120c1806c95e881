"""Emits matrix products by ARM's instructions that multiply small matrices: `bfmmla` and `smmla`.

One takes two rows of a and two columns of b, two units of k deep (four elements of bfloat16, eight of int8), and adds their 2 x 2 products
to a register: twice what `bfdot` and `sdot` do. Operands lie as those want them; neighbouring units are put side by side as they are read.
"""

from __future__ import annotations

from kernelpack.backends.cpu.emit.places import Place
from kernelpack.backends.cpu.emit.product_in_lanes import LanesAlongResult, Ones, Vectors
from kernelpack.backends.cpu.plan.buffers import OperandBuffer
from kernelpack.ir.types import BF16
from kernelpack.llvm.text import Val, vector_type

_EDGE = 2
"""The rows and columns of a square of results, and the units of k that one instruction takes."""
_LANES = 4
"""The units of 32 bits in a register."""


class InSquares(LanesAlongResult):
    """A product whose accumulators are squares: of two rows and two neighbours in the lanes, which lie row after row."""

    def advance(self, accumulators: list[Val], place: Place, step: int, vectors: Vectors, ones: Ones) -> list[Val]:
        if not self._fits(len(accumulators) // self.vectors, step):
            return super().advance(accumulators, place, step, vectors, ones)
        for first in range(0, step, _EDGE):
            units = [place.plus(first + number) for number in range(_EDGE)]
            lanes = [side for pair in zip(*(vectors(unit) for unit in units), strict=True) for side in self._zip(*pair)]
            rows = self._rows([ones(unit) for unit in units])
            factors = [(row, lane) for row in rows for lane in lanes]
            accumulators = [self._multiply(a, b, c) for (a, b), c in zip(factors, accumulators, strict=True)]
        return accumulators

    def finish(self, slots: list[Val], step: int) -> None:
        """Makes rows of squares, in place: those of two rows lie in the slots of both."""
        if not self._fits(len(slots) // self.vectors, step):
            return
        em = self.em
        for start in range(0, len(slots), _EDGE * self.vectors):
            pair = slots[start : start + _EDGE * self.vectors]
            squares = [em.load(self.kind, slot, 64) for slot in pair]
            for vector in range(self.vectors):
                left, right = squares[_EDGE * vector : _EDGE * (vector + 1)]
                em.store(em.shuffle(left, right, [0, 1, 4, 5]), pair[vector], 64)
                em.store(em.shuffle(left, right, [2, 3, 6, 7]), pair[self.vectors + vector], 64)

    def _fits(self, rows: int, step: int) -> bool:
        return self.packed.pack > 1 and self.width == _LANES and rows % _EDGE == 0 and step % _EDGE == 0

    def _zip(self, first: Val, second: Val) -> list[Val]:
        """Returns the units of two vectors in turns: the first halves, and the second ones."""
        return [self.em.shuffle(first, second, order) for order in ([0, 4, 1, 5], [2, 6, 3, 7])]

    def _rows(self, addresses: list[list[Val]]) -> list[Val]:
        """Returns two rows a register, each with two units of k. `addresses` has those of each row, unit after unit."""
        em, half, size = self.em, vector_type("i32", _EDGE), self.packed.unit_bytes
        assert isinstance(self.scalar, OperandBuffer)
        result = []
        for row in range(0, len(addresses[0]), _EDGE):
            if self.scalar.k_inner:  # units of a row are neighbours
                pair, order = addresses[0][row : row + _EDGE], [0, 1, 2, 3]
            else:  # rows of a unit are
                pair, order = [unit[row] for unit in addresses], [0, 2, 1, 3]
            first, second = (em.load(half, address, size) for address in pair)
            result.append(em.shuffle(first, second, order))
        return result

    def _multiply(self, a: Val, b: Val, accumulator: Val) -> Val:
        bf16 = self.packed.element == BF16
        name, kind = ("bfmmla", "bfloat") if bf16 else ("smmla.v4i32.v16i8", "i8")
        factors = [self.em.cast("bitcast", value, vector_type(kind, 8 if bf16 else 16)) for value in (a, b)]
        return self.em.call(self.kind, f"llvm.aarch64.neon.{name}", [accumulator, *factors])
