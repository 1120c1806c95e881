"""Plans a tile program: which tiles live in buffers, and in what order they are written and read."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from kernelpack.backends.cpu.facts.axes import Axes
from kernelpack.backends.cpu.facts.ends import ends_of
from kernelpack.backends.cpu.facts.features import Level
from kernelpack.backends.cpu.plan.buffers import (
    BUFFERED,
    Buffer,
    Naming,
    Operand,
    OperandBuffer,
    Storage,
    moves_unit_axes,
    tile_name,
)
from kernelpack.backends.cpu.plan.fuse_nests import FusedStatements
from kernelpack.backends.cpu.plan.plan_product import plan_operand
from kernelpack.backends.cpu.plan.sinks import Atomic, Histogram, Map, Materialize, Message, Prefetch, Reduce, Scan, Store
from kernelpack.backends.cpu.plan.tile_program import Dot, For, If, Scalar, Statement, TileProgram, While
from kernelpack.ir import views
from kernelpack.ir.core import Block, Operation, OpResult, Value
from kernelpack.ir.dialect import Trait, definition, operand
from kernelpack.ir.types import TensorType, element_of, shape_of


@dataclass(frozen=True, eq=False)
class Target:
    """Where a block's result goes. `old` is the carried tile that the buffer holds until then."""

    buffer: Buffer
    old: Value | None = None


@dataclass(eq=False)
class Placement:
    """A result of a block that is written to its target as soon as it exists, over the carried tile `old`, not at the end of the
    block. `depth` says how many blocks there are around it."""

    terminator: Operation
    index: int
    old: Value | None
    depth: int


@dataclass
class Knowledge:
    """What earlier plans have taught.

    `keep`: tiles to hold in a buffer, by lane axis. `copy_at_end`: block results (terminator, index) that cannot be written
    early. `snapshot`: carried tiles to copy when an iteration begins.
    """

    keep: dict[Value, set[int]] = field(default_factory=lambda: defaultdict(set))
    copy_at_end: set[tuple[Operation, int]] = field(default_factory=set)
    snapshot: set[Value] = field(default_factory=set)

    def text(self, name: Naming) -> str:
        """Returns a line for each thing that is known."""
        lines = [f"keep {name(value)}, lanes {axis}" for value, axes in self.keep.items() for axis in sorted(axes)]
        late = sorted(name(terminator.operands[index]) for terminator, index in self.copy_at_end)
        lines += [f"write {value} when its block ends" for value in late]
        lines += [f"copy {value} when its iteration begins" for value in sorted(map(name, self.snapshot))]
        return "\n".join(lines)


class Planner:
    """Builds one plan."""

    def __init__(self, function: Operation, level: Level, known: Knowledge) -> None:
        self.function = function
        self.level = level
        self.known = known
        self.axes = Axes()
        self.buffers: list[Storage] = []
        self.plain: dict[Value, dict[int, Buffer]] = {}
        self.packed: dict[Value, list[OperandBuffer]] = defaultdict(list)
        self.packings: dict[Value, list[OperandBuffer]] = defaultdict(list)  # by the tile that is written
        self.placements: list[Placement] = []
        self.names: dict[str, int] = defaultdict(int)
        self.depth = 0

    def run(self) -> TileProgram:
        """Returns the program. How products read their operands comes first: tiles are packed as soon as they exist."""
        products = [op for op in self.function.walk() if op.name == "tt.dot"]
        self.read = {dot: (self.operand(dot, "a"), self.operand(dot, "b")) for dot in products}
        statements = self.block(self.function.body, [])
        return TileProgram(self.function, statements, self.buffers, self.plain)

    # ---- buffers ----

    def add(self, buffer: Storage) -> None:
        """Adds a buffer to the program. A number tells it from earlier ones of its name."""
        self.names[buffer.name] += 1
        count = self.names[buffer.name]
        buffer.name += f".{count}" if count > 1 else ""
        self.buffers.append(buffer)

    def buffer(self, value: Value, inner_axis: int) -> Buffer:
        """Returns a new buffer for a tile."""
        buffer = Buffer(tile_name(value), shape_of(value.type), inner_axis, element_of(value.type))
        self.add(buffer)
        return buffer

    def operand(self, dot: Operation, name: str) -> Operand:
        """Returns how a product reads an operand. Products that want a tile in the same layout share its buffer."""
        wanted = plan_operand(dot, name, self.axes, self.level)
        if not isinstance(wanted, OperandBuffer):
            return wanted
        packed = self.packed[operand(dot, name)]
        shared = next((buffer for buffer in packed if buffer.layout == wanted.layout), None)
        if shared is None:
            packed.append(wanted)
            self.add(wanted)
            source, into = _packed_from(operand(dot, name), wanted)
            self.packings[source].append(into)
        return shared or wanted

    def hold(self, value: Value, buffer: Buffer) -> None:
        """Says that a buffer holds a tile."""
        self.plain.setdefault(value, {})[buffer.inner_axis] = buffer

    # ---- blocks ----

    def block(self, block: Block, targets: list[Target | None]) -> list[Statement]:
        """Plans a block whose terminator's tiles go to `targets`."""
        made = FusedStatements(block, self.plain)
        direct = self.direct_targets(block, targets)
        self.depth += 1
        for argument in block.arguments:
            if argument in self.known.snapshot:
                carried = next(iter(self.plain[argument].values()))
                copy = self.buffer(argument, carried.inner_axis)
                made.add(Materialize(argument, copy, -1, carried), carried.inner_axis)
                self.plain[argument] = {copy.inner_axis: copy}
            self.keep(made, argument, -1, None)
        for position, op in enumerate(block.operations):
            if Trait.TERMINATOR in definition(op.name).traits:
                for value, target in zip(op.operands, targets, strict=False):
                    if target is not None and direct.get(value) is not target:
                        self.write(made, value, target.buffer, position)
            else:
                self.operation(made, op, position, direct)
                for result in op.results:
                    self.keep(made, result, position, direct.get(result))
        self.depth -= 1
        return made.statements

    def direct_targets(self, block: Block, targets: list[Target | None]) -> dict[Value, Target]:
        """Returns the terminator's tiles that go to their target as soon as they exist."""
        direct: dict[Value, Target] = {}
        values = block.terminator.operands
        for index, (value, target) in enumerate(zip(values, targets, strict=False)):
            op = value.defining_op
            if target is None or op is None or op.parent is not block or values.count(value) > 1:
                continue
            if op.name == "tt.dot" and self.axes.dot_axis(op) != target.buffer.inner_axis:
                continue  # its operands are packed for other lanes
            if (block.terminator, index) not in self.known.copy_at_end:
                self.placements.append(Placement(block.terminator, index, target.old, self.depth))
                direct[value] = target
        return direct

    def write(self, made: FusedStatements, value: Value, buffer: Buffer, position: int) -> None:
        """Copies a tile to a buffer, unless it lives there already."""
        if buffer not in self.plain.get(value, {}).values():
            made.add(Materialize(value, buffer, position), self.lanes_for(value, buffer))

    def keep(self, made: FusedStatements, value: Value, position: int, target: Target | None) -> None:
        """Adds what must be written as soon as a tile exists: its target, tiles to keep, operands of products."""
        if not isinstance(value.type, TensorType):
            return
        op = value.defining_op
        if target is not None and op is not None and op.name not in BUFFERED:
            self.write(made, value, target.buffer, position)
            self.hold(value, target.buffer)
        for axis in sorted(self.known.keep.get(value, ())):
            if axis not in self.plain.get(value, {}):
                buffer = self.buffer(value, axis)
                self.write(made, value, buffer, position)
                self.hold(value, buffer)
        for packed in self.packings.get(value, ()):
            made.add(Materialize(value, packed, position), self.lanes_for(value, packed))

    def lanes_for(self, value: Value, into: Storage) -> int:
        """Returns the lane axis of the nest that writes a tile: that of a buffer which holds it, the tile's own, or the new buffer's."""
        axis = next(iter(self.plain.get(value, ())), self.axes.firm_axis(value))
        return into.inner_axis if axis is None else axis

    def target(self, result: OpResult, direct: dict[Value, Target]) -> Target:
        """Returns where an operation's result goes: its direct target, or a new buffer."""
        target = direct.get(result) or Target(self.buffer(result, self.axes.lane_axis(result)))
        self.hold(result, target.buffer)
        return target

    def tile_targets(self, op: Operation, direct: dict[Value, Target]) -> list[Target | None]:
        return [self.target(r, direct) if isinstance(r.type, TensorType) else None for r in op.results]

    # ---- operations ----

    def operation(self, made: FusedStatements, op: Operation, position: int, direct: dict[Value, Target]) -> None:
        tiles = any(isinstance(value.type, TensorType) for value in (*op.operands, *op.results))
        match op.name:
            case "scf.for":
                self.loop(made, op, position, direct)
            case "scf.if":
                targets = self.tile_targets(op, direct)
                branches = [self.block(r.block, targets) if r.blocks else [] for r in op.regions]
                made.append(If(op, [t.buffer if t else None for t in targets], *branches))
            case "scf.while":
                self.while_loop(made, op, position, direct)
            case "tt.dot":
                out = self.target(op.result, direct).buffer
                made.append(Dot(op, *self.read[op], out, ends_of(op)))
            case "tt.reduce":
                into = [t.buffer if t else None for t in self.tile_targets(op, direct)]
                made.add(Reduce(op, into, position), self.best_lanes(op.operands))
            case "tt.scan":
                buffers = [t.buffer for t in self.tile_targets(op, direct) if t]
                made.add(Scan(op, buffers, position), buffers[0].inner_axis)
            case "tt.store" if tiles:
                made.add(Store(op, self.axes.memory_axis(operand(op, "ptr")), position), self.store_lanes(op))
            case "tt.map_elementwise":
                mapped = [t.buffer for t in self.tile_targets(op, direct) if t]
                source, *_ = op.operands
                made.add(Map(op, mapped, position), len(shape_of(source.type)) - 1)
            case "tt.histogram":
                made.add(Histogram(op, self.target(op.result, direct).buffer, position), 0)
            case "tt.print" | "tt.assert" | "cpu.check_access" if tiles:
                shown, *_ = op.operands
                made.add(Message(op, position), len(shape_of(shown.type)) - 1)
            case "cpu.prefetch":
                made.add(Prefetch(op, position), self.axes.memory_axis(operand(op, "ptr")) or 0)
            case "tt.atomic_rmw" | "tt.atomic_cas" if tiles:
                old = self.target(op.result, direct).buffer if op.result.uses else None
                made.add(Atomic(op, old, position), self.store_lanes(op))
            case _ if not tiles or op.name == "tt.unsplat":
                made.append(Scalar(op))

    def best_lanes(self, values: list[Value]) -> int:
        """Returns the lane axis of the nest that reads several tiles: that of the tile on whose axis most depends."""
        axis, _ = max((self.axes.preference(value) for value in values), key=lambda preference: preference[1])
        return axis if axis is not None else len(shape_of(values[0].type)) - 1

    def store_lanes(self, op: Operation) -> int:
        """Returns the lane axis of the nest that writes to memory: the tile's own, the contiguous one, or the last."""
        pointer, value, *_ = op.operands
        axes = (self.axes.firm_axis(value), self.axes.memory_axis(pointer))
        return next((axis for axis in axes if axis is not None), len(shape_of(pointer.type)) - 1)

    def loop(self, made: FusedStatements, op: Operation, position: int, direct: dict[Value, Target]) -> None:
        targets = self.tile_targets(op, direct)
        inner: list[Target | None] = []
        for carried, target in zip(views.For.of(op).carried, targets, strict=True):
            argument = carried.argument
            inner.append(Target(target.buffer, argument) if target is not None else None)
            if target is not None:
                self.write(made, carried.initial, target.buffer, position)
                self.hold(argument, target.buffer)
        body = self.block(op.body, inner)
        made.append(For(op, [t.buffer if t else None for t in targets], body))

    def while_loop(self, made: FusedStatements, op: Operation, position: int, direct: dict[Value, Target]) -> None:
        """Plans a loop whose two blocks each write what the other reads, so that neither overwrites what it still needs."""
        before, body = (region.block for region in op.regions)
        passed = self.tile_targets(op, direct)
        carried: list[Target | None] = []
        for value, argument in zip(op.operands, before.arguments, strict=True):
            tile = isinstance(value.type, TensorType)
            target = Target(self.buffer(argument, self.axes.lane_axis(argument))) if tile else None
            carried.append(target)
            if target is not None:
                self.write(made, value, target.buffer, position)
                self.hold(argument, target.buffer)
        for argument, target in zip(body.arguments, passed, strict=True):
            if target is not None:
                self.hold(argument, target.buffer)
        statements = self.block(before, [None, *passed])
        held, given = ([target.buffer if target else None for target in targets] for targets in (carried, passed))
        made.append(While(op, held, given, statements, self.block(body, carried)))


def _packed_from(value: Value, into: OperandBuffer) -> tuple[Value, OperandBuffer]:
    """Returns what is written where an operand of a product is packed: the operand, or the tile whose axes a reshape merges."""
    op = value.defining_op
    if op is None or op.name != "tt.reshape" or moves_unit_axes(op):
        return value, into
    cut = into.cut(shape_of(op.operand.type))
    return (value, into) if cut is None else (op.operand, cut)
