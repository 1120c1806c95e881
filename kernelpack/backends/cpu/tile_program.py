"""The tile-loop level: what a kernel does on a CPU as a list of loop nests over tiles, matrix products and scratch buffers.

A tile lives in a *buffer* only where it must (loop-carried, operand of a product, used by several nests); everything else is
recomputed element by element inside the nest that consumes it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field

from kernelpack.backends.cpu.levels import Level
from kernelpack.ir.core import Block, Operation, Value
from kernelpack.ir.types import BF16, F16, F32, I32, Type, bit_width, element_of, is_float, is_int, shape_of


@dataclass(eq=False)
class Buffer:
    """Scratch memory that holds a tile. `lane_axis` is the innermost axis; the others keep their order outside it."""

    name: str
    shape: tuple[int, ...]
    lane_axis: int
    element: Type

    @property
    def strides(self) -> tuple[int, ...]:
        """The distance in elements between neighbours along each axis."""
        order = [axis for axis in range(len(self.shape)) if axis != self.lane_axis] + [self.lane_axis]
        steps, step = [0] * len(self.shape), 1
        for axis in reversed(order):
            steps[axis], step = step, step * self.shape[axis]
        return tuple(steps)

    @property
    def bytes(self) -> int:
        count = 1
        for extent in self.shape:
            count *= extent
        return count * max(1, bit_width(self.element) // 8)

    def __str__(self) -> str:
        return f"{self.name}[{'x'.join(map(str, self.shape))}x{self.element}, lanes {self.lane_axis}]"


@dataclass(eq=False)
class OperandBuffer:
    """Scratch memory that holds an operand of a matrix product in the order its inner loop reads it.

    The operand has axes (..., `other_axis`/`k_axis`). `pack` neighbours along k share one 32-bit unit (2 for bf16 pairs).
    `k_inner` says that k runs fastest; otherwise the other axis does, and `panel` > 0 cuts it into panels that wide.
    """

    name: str
    shape: tuple[int, ...]
    k_axis: int
    element: Type
    pack: int
    k_inner: bool = False
    panel: int = 0

    @property
    def other_axis(self) -> int:
        rank = len(self.shape)
        return 2 * rank - 3 - self.k_axis  # the last two axes are rank - 2 and rank - 1

    @property
    def inner_axis(self) -> int:
        return self.k_axis if self.k_inner else self.other_axis

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
        return self.k_units * self.shape[self.other_axis]

    @property
    def bytes(self) -> int:
        planes = 1
        for extent in self.shape[:-2]:
            planes *= extent
        return planes * self.plane_units * self.unit_bytes

    def __str__(self) -> str:
        order = "k inner" if self.k_inner else f"panels of {self.panel}" if self.panel else "k outer"
        pairs = ", pairs" if self.pack == 2 else ""
        return f"{self.name}[{'x'.join(map(str, self.shape))}x{self.element}, {order}{pairs}]"


Storage = Buffer | OperandBuffer


@dataclass(eq=False)
class InPlace:
    """An operand of a matrix product that its inner loop reads where a load without a mask finds it: `value` is that load, or
    a transpose of it. `k_inner` says that neighbours along k are neighbours in memory; otherwise those along the other axis are.
    """

    value: Value
    k_axis: int
    k_inner: bool

    @property
    def name(self) -> str:
        return _name(self.value)

    def source(self) -> tuple[Operation, list[int]]:
        """Returns the load, and the axis of it that each axis of the operand is."""
        op, axes = self.value.defining_op, list(range(len(shape_of(self.value.type))))
        while op is not None and op.name == "tt.trans":
            axes = [int(op.attributes["order"][axis]) for axis in axes]
            op = op.operands[0].defining_op
        assert op is not None
        return op, axes


Operand = OperandBuffer | InPlace

# ---- what a nest does at every place of its domain ----


@dataclass(eq=False)
class Materialize:
    """Writes a tile into a buffer; `source` is the buffer to copy it from, where that is not among the tile's own."""

    value: Value
    into: Storage
    position: int
    source: Buffer | None = None

    def __str__(self) -> str:
        return f"{self.into} <- {_name(self.value)}"


@dataclass(eq=False)
class Reduce:
    """Reduces tiles along an axis; `into` is None for a scalar result."""

    op: Operation
    into: list[Buffer | None]
    position: int

    @property
    def axis(self) -> int:
        return int(self.op.attributes["axis"])

    def __str__(self) -> str:
        targets = ", ".join(str(b) if b else _name(r) for b, r in zip(self.into, self.op.results, strict=True))
        return f"{targets} <- reduce axis {self.axis} of {', '.join(map(_name, self.op.operands))}"


@dataclass(eq=False)
class Scan:
    """Scans tiles along an axis."""

    op: Operation
    into: list[Buffer]
    position: int

    @property
    def axis(self) -> int:
        return int(self.op.attributes["axis"])

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.into))} <- scan axis {self.axis} of {', '.join(map(_name, self.op.operands))}"


@dataclass(eq=False)
class Store:
    """Writes a tile to global memory, whose contiguous axis is `memory_axis` (None where there is none)."""

    op: Operation
    memory_axis: int | None
    position: int

    def __str__(self) -> str:
        return f"store {_name(self.op.operands[1])} to {_name(self.op.operands[0])}"


@dataclass(eq=False)
class Atomic:
    """Updates global memory atomically, element by element; `into` is None where nobody reads the old values."""

    op: Operation
    into: Buffer | None
    position: int

    def __str__(self) -> str:
        what = self.op.attributes.get("atomic_rmw_op", "compare and swap")
        return f"atomic {what} {_name(self.op.operands[1])} at {_name(self.op.operands[0])}"


@dataclass(eq=False)
class Map:
    """Runs an operation's region on groups of neighbours along the last axis."""

    op: Operation
    into: list[Buffer]
    position: int

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.into))} <- map of {', '.join(map(_name, self.op.operands))}"


@dataclass(eq=False)
class Histogram:
    """Counts the values of a tile into a buffer."""

    op: Operation
    into: Buffer
    position: int

    def __str__(self) -> str:
        return f"{self.into} <- histogram of {_name(self.op.operands[0])}"


@dataclass(eq=False)
class Message:
    """Prints a tile's elements, or stops the program where a condition does not hold for one."""

    op: Operation
    position: int

    def __str__(self) -> str:
        return f"{self.op.name.split('.')[1]} {', '.join(map(_name, self.op.operands))}"


Root = Materialize | Reduce | Scan | Store | Atomic | Map | Histogram | Message

ALONE = (Scan, Atomic, Map, Histogram, Message)
"""Roots that share a nest with no other."""
WRITES = (Store, Atomic, Map)
"""Roots that may write global memory."""

# ---- statements ----


@dataclass(eq=False)
class Nest:
    """A loop nest over `shape` with vector lanes along `lane_axis`, doing all its roots at every place."""

    shape: tuple[int, ...]
    lane_axis: int
    roots: list[Root]


@dataclass(eq=False)
class Dot:
    """A matrix product: out = a b + c, with `lane_axis` of the result in vector lanes. c is evaluated where out is first touched."""

    op: Operation
    a: Operand
    b: Operand
    out: Buffer

    @property
    def lane_axis(self) -> int:
        return self.out.lane_axis

    @property
    def along_k(self) -> bool:
        """Whether the inner loop has k in the lanes, and sums of lanes are the result."""
        return self.a.k_inner and self.b.k_inner


@dataclass(eq=False)
class Scalar:
    """A scalar operation."""

    op: Operation


@dataclass(eq=False)
class For:
    """A loop; tiles it carries live in `carried` (None for scalars)."""

    op: Operation
    carried: list[Buffer | None]
    body: list[Statement] = field(default_factory=list)


@dataclass(eq=False)
class If:
    """A branch; tiles it gives live in `results` (None for scalars)."""

    op: Operation
    results: list[Buffer | None]
    then: list[Statement] = field(default_factory=list)
    otherwise: list[Statement] = field(default_factory=list)


@dataclass(eq=False)
class While:
    """A loop with a condition. Tiles that the condition block takes live in `carried`, those it passes on in `passed`."""

    op: Operation
    carried: list[Buffer | None]
    passed: list[Buffer | None]
    before: list[Statement] = field(default_factory=list)
    body: list[Statement] = field(default_factory=list)


Statement = Nest | Dot | Scalar | For | If | While


@dataclass(eq=False)
class TileProgram:
    """One kernel at the tile-loop level.

    `buffers` are all scratch buffers; `plain` says which buffers hold a tile for evaluation, by lane axis; `operands` which
    hold operand 0 or 1 of a product; `entry` is the kernel's function.
    """

    entry: Operation
    statements: list[Statement]
    buffers: list[Storage]
    plain: dict[Value, dict[int, Buffer]]
    operands: dict[tuple[Operation, int], Operand]

    def __str__(self) -> str:
        parameters = ", ".join(f"{_name(a)}: {a.type}" for a in self.entry.body.arguments)
        lines = [f"kernel {self.entry.attributes['sym_name']}({parameters})"]
        lines += _lines(self.statements, 1)
        return "\n".join(lines) + "\n"


def walk(statements: list[Statement]) -> Iterator[Statement]:
    """Yields all statements, nested ones too, in program order."""
    for statement in statements:
        yield statement
        if isinstance(statement, For):
            yield from walk(statement.body)
        elif isinstance(statement, If):
            yield from walk(statement.then)
            yield from walk(statement.otherwise)
        elif isinstance(statement, While):
            yield from walk(statement.before)
            yield from walk(statement.body)


def _lines(statements: list[Statement], depth: int) -> list[str]:
    pad, lines = "  " * depth, []
    for statement in statements:
        match statement:
            case Nest():
                shape = "x".join(map(str, statement.shape))
                lines.append(f"{pad}nest {shape}, lanes {statement.lane_axis}")
                lines += [f"{pad}  {root}" for root in statement.roots]
            case Dot():
                c = _name(statement.op.operands[2])
                lines.append(f"{pad}{statement.out} <- {statement.a.name} * {statement.b.name} + {c}")
            case Scalar():
                lines.append(f"{pad}{statement.op.name} {', '.join(map(_name, statement.op.results))}".rstrip())
            case For():
                carried = ", ".join(str(buffer) for buffer in statement.carried if buffer)
                lines.append(f"{pad}for {_name(statement.op.body.arguments[0])} carrying ({carried})")
                lines += _lines(statement.body, depth + 1)
            case While():
                lines.append(f"{pad}while")
                lines += _lines(statement.before, depth + 1)
                lines.append(f"{pad}do")
                lines += _lines(statement.body, depth + 1)
            case If():
                lines.append(f"{pad}if {_name(statement.op.operands[0])}")
                lines += _lines(statement.then, depth + 1)
                if statement.otherwise:
                    lines.append(f"{pad}else")
                    lines += _lines(statement.otherwise, depth + 1)
    return lines


def _name(value: Value) -> str:
    if value.name:
        return f"%{value.name}"
    op = value.defining_op
    return f"<{op.name.split('.')[1]}>" if op is not None else "<argument>"


def product_element(kind: Type, depth: int, lanes: int, level: Level) -> tuple[Type, int]:
    """Returns what an operand element becomes for the product's inner loop, and how many share a 32-bit unit.

    `depth` is the extent of k and `lanes` of the result's lane axis; the bf16 instruction takes pairs and 4, 8 or 16 lanes.
    """
    if kind == BF16 and level.bf16_dot and depth % 2 == 0 and lanes >= 4:
        return BF16, 2
    if kind in (BF16, F16):
        return F32, 1
    return (I32, 1) if is_int(kind) else (kind, 1)


def block_along_k(rows: int, level: Level) -> tuple[int, int]:
    """Returns how many of `rows` rows, and how many columns, of a product with k in the lanes have accumulators at a time."""
    accumulators = 1 << (level.rows * level.vectors).bit_length() - 1
    height = min(rows, accumulators // 4)
    return height, accumulators // height


def domain_of(root: Root) -> tuple[int, ...]:
    """Returns the shape that a root walks over."""
    return shape_of(values_of(root)[0].type)


def block_of(root: Root) -> Block | None:
    """Returns the block of the operation that a root stands for."""
    op = root.value.defining_op if isinstance(root, Materialize) else root.op
    return op.parent if op is not None else None


def moves_unit_axes(op: Operation) -> bool:
    """Whether a reshape only adds or removes axes of extent 1."""
    before, after = shape_of(op.operands[0].type), shape_of(op.result.type)
    return [extent for extent in before if extent > 1] == [extent for extent in after if extent > 1]


def turned_axis(root: Root, lane_axis: int) -> int | None:
    """Returns the axis that runs along the lanes of what a root writes, where that is not the nest's lane axis."""
    if isinstance(root, Store):
        axis = root.memory_axis
    elif isinstance(root, Materialize):
        axis = root.into.lane_axis if isinstance(root.into, Buffer) else root.into.inner_axis
    else:
        axis = None
    return axis if axis != lane_axis else None


def values_of(root: Root) -> list[Value]:
    """Returns the tiles that a root evaluates at every place of its domain."""
    return [root.value] if isinstance(root, Materialize) else list(root.op.operands)


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
