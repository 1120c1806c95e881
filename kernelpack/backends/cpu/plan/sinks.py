"""What a loop nest does at every place of its domain: its roots, from which evaluation starts, each with what it reads and writes."""

from __future__ import annotations

from dataclasses import dataclass

from kernelpack.backends.cpu.plan.buffers import Buffer, Naming, Storage
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.types import shape_of


@dataclass(eq=False)
class Materialize:
    """Writes a tile into a buffer; `source` is the buffer to copy it from, where that is not among the tile's own."""

    value: Value
    into: Storage
    position: int
    source: Buffer | None = None

    def text(self, name: Naming) -> str:
        copied = f", a copy of {self.source.name}" if self.source is not None else ""
        return f"{self.into.name} <- {name(self.value)}{copied}"


@dataclass(eq=False)
class Reduce:
    """Reduces tiles along an axis; `into` is None for a scalar result."""

    op: Operation
    into: list[Buffer | None]
    position: int

    @property
    def axis(self) -> int:
        return int(self.op.attributes["axis"])

    def text(self, name: Naming) -> str:
        targets = ", ".join(b.name if b else name(r) for b, r in zip(self.into, self.op.results, strict=True))
        return f"{targets} <- reduce axis {self.axis} of {', '.join(map(name, self.op.operands))}"


@dataclass(eq=False)
class Scan:
    """Scans tiles along an axis."""

    op: Operation
    into: list[Buffer]
    position: int

    @property
    def axis(self) -> int:
        return int(self.op.attributes["axis"])

    def text(self, name: Naming) -> str:
        targets = ", ".join(buffer.name for buffer in self.into)
        return f"{targets} <- scan axis {self.axis} of {', '.join(map(name, self.op.operands))}"


@dataclass(eq=False)
class Store:
    """Writes a tile to global memory, whose contiguous axis is `memory_axis` (None where there is none)."""

    op: Operation
    memory_axis: int | None
    position: int

    def text(self, name: Naming) -> str:
        pointer, value, *mask = map(name, self.op.operands)
        return f"store {value} to {pointer}{_where(mask)}"


@dataclass(eq=False)
class Atomic:
    """Updates global memory atomically, element by element; `into` is None where nobody reads the old values."""

    op: Operation
    into: Buffer | None
    position: int

    def text(self, name: Naming) -> str:
        old = f"{self.into.name} <- " if self.into is not None else ""
        pointer, *values = map(name, self.op.operands)
        if self.op.name == "tt.atomic_cas":
            return f"{old}atomic cas {', '.join(values)} at {pointer}"
        value, *mask = values
        return f"{old}atomic {self.op.attributes['atomic_rmw_op']} {value} at {pointer}{_where(mask)}"


@dataclass(eq=False)
class Map:
    """Runs an operation's region on groups of neighbours along the last axis."""

    op: Operation
    into: list[Buffer]
    position: int

    def text(self, name: Naming) -> str:
        return f"{', '.join(buffer.name for buffer in self.into)} <- map of {', '.join(map(name, self.op.operands))}"


@dataclass(eq=False)
class Histogram:
    """Counts the values of a tile into a buffer."""

    op: Operation
    into: Buffer
    position: int

    def text(self, name: Naming) -> str:
        source, *mask = map(name, self.op.operands)
        return f"{self.into.name} <- histogram of {source}{_where(mask)}"


@dataclass(eq=False)
class Message:
    """Prints a tile's elements, or stops the program where a condition does not hold for one."""

    op: Operation
    position: int

    def text(self, name: Naming) -> str:
        return f"{self.op.name.split('.')[1]} {', '.join(map(name, self.op.operands))}"


@dataclass(eq=False)
class Prefetch:
    """Asks for the memory that pointers point to."""

    op: Operation
    position: int

    def text(self, name: Naming) -> str:
        return f"prefetch {name(self.op.operand)}"


Root = Materialize | Reduce | Scan | Store | Atomic | Map | Histogram | Message | Prefetch

ALONE = (Scan, Atomic, Map, Histogram, Message)
"""Roots that share a nest with no other."""
WRITES = (Store, Atomic, Map)
"""Roots that may write global memory."""


def _where(mask: list[str]) -> str:
    return f" where {mask[0]}" if mask else ""


def domain_of(root: Root) -> tuple[int, ...]:
    """Returns the shape that a root walks over."""
    return shape_of(values_of(root)[0].type)


def turned_axis(root: Root, lane_axis: int) -> int | None:
    """Returns the axis that runs along the lanes of what a root writes, where that is not the nest's lane axis."""
    match root:
        case Store():
            axis = root.memory_axis
        case Materialize():
            axis = root.into.inner_axis
        case _:
            axis = None
    return axis if axis != lane_axis else None


def values_of(root: Root) -> list[Value]:
    """Returns the tiles that a root evaluates at every place of its domain."""
    return [root.value] if isinstance(root, Materialize) else list(root.op.operands)


def operation_of(root: Root) -> Operation | None:
    """Returns the operation whose results or effects a root makes; None for those of a parameter, or of what a loop carries."""
    return root.value.defining_op if isinstance(root, Materialize) else root.op


def made_by(root: Root) -> list[Value]:
    """Returns the values that can be read once a root has run: tiles from buffers, and scalars."""
    match root:
        case Materialize():
            return [root.value] if isinstance(root.into, Buffer) else []
        case Store() | Message() | Prefetch():
            return []
        case _:
            return list(root.op.results)


def buffers_of(root: Root) -> list[Storage]:
    """Returns the buffers that a root writes."""
    match root:
        case Materialize() | Histogram():
            return [root.into]
        case Atomic():
            return [root.into] if root.into is not None else []
        case Reduce() | Scan() | Map():
            return [buffer for buffer in root.into if buffer is not None]
        case Store() | Message() | Prefetch():
            return []
