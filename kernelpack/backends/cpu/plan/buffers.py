"""Where tiles are: in buffers of scratch memory, packed as operands of matrix products, read in place from global memory, or in no memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from kernelpack.backends.cpu.facts.affine import Bound
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.types import Type, bit_width, shape_of

BUFFERED = {
    "tt.dot", "tt.reduce", "tt.scan", "tt.atomic_rmw", "tt.atomic_cas", "tt.map_elementwise", "tt.histogram", "scf.for",
    "scf.if", "scf.while",
}  # fmt: skip
"""Operations whose tile results always live in buffers."""


@dataclass(eq=False)
class Buffer:
    """Scratch memory that holds a tile. Neighbours along `inner_axis` lie side by side; the other axes keep their order outside it."""

    name: str
    shape: tuple[int, ...]
    inner_axis: int
    element: Type

    @property
    def strides(self) -> tuple[int, ...]:
        """The distance in elements between neighbours along each axis."""
        order = [axis for axis in range(len(self.shape)) if axis != self.inner_axis] + [self.inner_axis]
        steps, step = [0] * len(self.shape), 1
        for axis in reversed(order):
            steps[axis], step = step, step * self.shape[axis]
        return tuple(steps)

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * max(1, bit_width(self.element) // 8)

    def __str__(self) -> str:
        return f"{self.name}: {'x'.join(map(str, self.shape))}x{self.element}, lanes {self.inner_axis}"


K_STEP = 64
"""How many units along k a product multiplies at a time at most."""


@dataclass(eq=False)
class OperandBuffer:
    """Scratch memory that holds an operand of a matrix product in the order its inner loop reads it.

    The operand has axes (..., `other_axis`/`k_axis`). `pack` neighbours along k share one 32-bit unit (2 for bf16 and 16-bit pairs, 4 for
    int8). `k_inner` says that k runs fastest; otherwise the other axis does, and `panel` > 0 cuts it into panels that wide. Elements that
    are `biased` are greater by 128, which makes unsigned bytes of signed ones. Where `depth`, with the place along k added, does not hold,
    both operands of the product are zero: only what a step of K_STEP units along k begins before that place is written and read.
    `whole` is the buffer whose memory this is, if its axis of k is cut into several here.
    """

    name: str
    shape: tuple[int, ...]
    k_axis: int
    element: Type
    pack: int
    k_inner: bool = False
    panel: int = 0
    biased: bool = False
    depth: Bound | None = None
    whole: OperandBuffer | None = None

    def cut(self, shape: tuple[int, ...]) -> OperandBuffer | None:
        """Returns the same memory for a tile of which a reshape makes the operand, by merging axes into k; None where another one does."""
        *inner, columns = shape
        merges = len(self.shape) == 2 and len(shape) > 2 and columns == self.shape[-1]
        if not merges or self.k_inner or self.k_axis != 0 or inner[-1] % self.pack:
            return None
        return replace(self, shape=shape, k_axis=len(shape) - 2, depth=None, whole=self)

    @property
    def other_axis(self) -> int:
        return _other_axis(self.shape, self.k_axis)

    @property
    def inner_axis(self) -> int:
        return self.k_axis if self.k_inner else self.other_axis

    @property
    def layout(self) -> tuple[object, ...]:
        """What products that share the buffer agree on."""
        return self.k_axis, self.element, self.pack, self.k_inner, self.panel, self.biased, self.depth

    @property
    def unit_bytes(self) -> int:
        return bit_width(self.element) // 8 * self.pack

    @property
    def k_units(self) -> int:
        return self.shape[self.k_axis] // self.pack

    @property
    def row_units(self) -> int:
        """The distance in units between neighbouring rows of the slower axis.

        Rows of k whose length is a multiple of 1 KB would share cache sets: they are padded by a cache line.
        """
        if not self.k_inner:
            return self.panel or self.shape[self.other_axis]
        length = self.k_units
        return length + 64 // self.unit_bytes if length * self.unit_bytes % 1024 == 0 else length

    @property
    def plane_units(self) -> int:
        """The units of one matrix."""
        if self.k_inner:
            return self.shape[self.other_axis] * self.row_units
        return self.k_units * (self.row_units if self.whole else self.shape[self.other_axis])

    @property
    def panel_units(self) -> int:
        """The units of one panel."""
        return (self.whole or self).k_units * self.panel

    @property
    def bytes(self) -> int:
        return math.prod(self.shape[:-2]) * self.plane_units * self.unit_bytes

    def __str__(self) -> str:
        order = "k inner" if self.k_inner else f"panels of {self.panel}" if self.panel else "k outer"
        units = {1: "", 2: ", pairs", 4: ", quads"}[self.pack]
        biased = ", biased" if self.biased else ""
        return f"{self.name}: {'x'.join(map(str, self.shape))}x{self.element}, {order}{units}{biased}"


Storage = Buffer | OperandBuffer


@dataclass(frozen=True, eq=False)
class InPlace:
    """An operand of a matrix product that its inner loop reads where a load without a mask finds it.

    `value` is the result of `load`, or a transpose of it: `axes` says which axis of the load each of its axes is. `k_inner` says
    that neighbours along k are neighbours in memory; otherwise those along the other axis are.
    """

    value: Value
    load: Operation
    axes: tuple[int, ...]
    k_axis: int
    k_inner: bool

    @property
    def other_axis(self) -> int:
        return _other_axis(self.axes, self.k_axis)


@dataclass(frozen=True, eq=False)
class Evaluated:
    """An operand of a matrix product whose vectors, of neighbours along its other axis, its inner loop computes as it needs them: each once,
    as there is one row. `element`, `panel` and `depth` are those of an OperandBuffer."""

    value: Value
    k_axis: int
    element: Type
    panel: int
    depth: Bound | None = None
    pack: int = field(default=1, init=False)
    k_inner: bool = field(default=False, init=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.value.type)

    @property
    def other_axis(self) -> int:
        return _other_axis(self.shape, self.k_axis)

    @property
    def unit_bytes(self) -> int:
        return bit_width(self.element) // 8

    @property
    def k_units(self) -> int:
        return self.shape[self.k_axis]


Operand = OperandBuffer | InPlace | Evaluated

Naming = Callable[[Value], str]
"""What values are called where people read a tile program."""


def _other_axis(axes: Sequence[int], k_axis: int) -> int:
    """Returns the one of the last two axes that is not k's."""
    return 2 * len(axes) - 3 - k_axis


def tile_name(value: Value) -> str:
    """Returns what a buffer for a tile is called."""
    op = value.defining_op
    return value.name or (op.name.split(".")[1] if op is not None else "tile")


def moves_unit_axes(reshape: Operation) -> bool:
    """Whether a reshape only adds or removes axes of extent 1. Any other reads a row-major buffer."""
    before, after = shape_of(reshape.operand.type), shape_of(reshape.result.type)
    return [extent for extent in before if extent > 1] == [extent for extent in after if extent > 1]
