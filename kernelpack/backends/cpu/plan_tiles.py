"""Plans a tile program: which tiles live in buffers, in what order, and which operations share a loop nest."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from kernelpack.backends.cpu.affine import strides
from kernelpack.backends.cpu.axes import Axes
from kernelpack.backends.cpu.in_place import overwrites, stores_over
from kernelpack.backends.cpu.levels import Level
from kernelpack.backends.cpu.tile_program import (
    ALONE,
    WRITES,
    Atomic,
    Buffer,
    Dot,
    For,
    Histogram,
    If,
    InPlace,
    Map,
    Materialize,
    Message,
    Nest,
    Operand,
    OperandBuffer,
    Reduce,
    Root,
    Scalar,
    Scan,
    Statement,
    Storage,
    Store,
    TileProgram,
    While,
    block_of,
    domain_of,
    product_element,
    turned_axis,
    values_of,
)
from kernelpack.ir.core import Block, Operation, OpResult, Value
from kernelpack.ir.dialect import Effect, Trait, definition, effects_of, optional_operand
from kernelpack.ir.types import TensorType, bit_width, element_of, shape_of

BUFFERED = {
    "tt.dot", "tt.reduce", "tt.scan", "tt.atomic_rmw", "tt.atomic_cas", "tt.map_elementwise", "tt.histogram", "scf.for",
    "scf.if", "scf.while",
}  # fmt: skip
"""Operations whose tile results always live in buffers."""


@dataclass(frozen=True, eq=False)
class Target:
    """Where a block's result goes. `old` is the carried tile that the buffer holds until then."""

    buffer: Buffer
    old: Value | None = None


@dataclass(eq=False)
class Placement:
    """A result of a block that is written to its target as soon as it exists, not at the end of the block."""

    terminator: Operation
    index: int
    target: Target
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


class Planner:
    """Builds one plan."""

    def __init__(self, function: Operation, level: Level, known: Knowledge) -> None:
        self.function = function
        self.level = level
        self.known = known
        self.axes = Axes()
        self.buffers: list[Storage] = []
        self.plain: dict[Value, dict[int, Buffer]] = {}
        self.operands: dict[tuple[Operation, int], Operand] = {}
        self.by_value: dict[Value, list[OperandBuffer]] = defaultdict(list)
        self.placements: list[Placement] = []
        self.names: dict[str, int] = {}
        self.depth = 0

    def run(self) -> TileProgram:
        for op in self.function.walk():
            if op.name == "tt.dot":
                for index in (0, 1):
                    self.plan_operand(op, index)
        statements = self.block(self.function.body, [])
        return TileProgram(self.function, statements, self.buffers, self.plain, self.operands)

    # ---- buffers ----

    def name(self, value: Value) -> str:
        op = value.defining_op
        base = value.name or (op.name.split(".")[1] if op is not None else "tile")
        count = self.names[base] = self.names.get(base, 0) + 1
        return base if count == 1 else f"{base}.{count}"

    def buffer(self, value: Value, lane_axis: int) -> Buffer:
        buffer = Buffer(self.name(value), shape_of(value.type), lane_axis, element_of(value.type))
        self.buffers.append(buffer)
        return buffer

    def hold(self, value: Value, buffer: Buffer) -> None:
        """Says that a buffer holds a tile."""
        self.plain.setdefault(value, {})[buffer.lane_axis] = buffer

    def plan_operand(self, dot: Operation, index: int) -> None:
        """Chooses how an operand of a product is laid out; products that want the same share it."""
        value = dot.operands[index]
        shape = shape_of(value.type)
        rank = len(shape)
        lane_axis = self.axes.dot_axis(dot)
        rows_in_lanes = lane_axis == rank - 2
        k_axis = rank - 1 if index == 0 else rank - 2
        other = shape[rank - 2 if index == 0 else rank - 1]
        lane_extent = shape_of(dot.result.type)[lane_axis]
        element, pack = product_element(element_of(value.type), shape[k_axis], lane_extent, self.level)
        along_k = self.axes.along_k(dot, self.level)
        if along_k:
            panel, k_inner = 0, True
            direct = index == 1 and bit_width(element_of(value.type)) >= 16
        elif rows_in_lanes == (index == 0):
            lanes = min(self.level.lanes(bit_width(element) * pack), other)
            panel, k_inner, direct = min(lanes * self.level.vectors, other), False, False
        else:
            panel, k_inner, direct = 0, self.axes.lane_axis(value) == k_axis, (element, pack) == (element_of(value.type), 1)
        in_place = read_in_place(dot, index, k_axis) if direct else None
        if in_place is not None and (in_place.k_inner or not along_k):
            self.operands[dot, index] = in_place
            return
        for known in self.by_value[value]:
            if (known.panel, known.k_inner, known.k_axis, known.pack) == (panel, k_inner, k_axis, pack):
                self.operands[dot, index] = known
                return
        buffer = OperandBuffer(self.name(value), shape, k_axis, element, pack, k_inner, panel)
        self.buffers.append(buffer)
        self.by_value[value].append(buffer)
        self.operands[dot, index] = buffer

    # ---- blocks ----

    def block(self, block: Block, targets: list[Target | None]) -> list[Statement]:
        """Plans a block whose terminator's tiles go to `targets`."""
        sequence = Sequence(self)
        direct = self.direct_targets(block, targets)
        self.depth += 1
        for argument in block.arguments:
            if argument in self.known.snapshot:
                carried = next(iter(self.plain[argument].values()))
                copy = self.buffer(argument, carried.lane_axis)
                sequence.add(Materialize(argument, copy, -1, carried), carried.lane_axis)
                self.plain[argument] = {copy.lane_axis: copy}
            self.keep(sequence, argument, -1, None)
        for position, op in enumerate(block.operations):
            if Trait.TERMINATOR in definition(op.name).traits:
                for value, target in zip(op.operands, targets, strict=False):
                    if target is not None and direct.get(value) is not target:
                        self.write(sequence, value, target.buffer, position)
            else:
                self.operation(sequence, op, position, direct)
                for result in op.results:
                    self.keep(sequence, result, position, direct.get(result))
        self.depth -= 1
        return sequence.statements

    def direct_targets(self, block: Block, targets: list[Target | None]) -> dict[Value, Target]:
        """Returns the terminator's tiles that go to their target as soon as they exist."""
        direct: dict[Value, Target] = {}
        values = block.terminator.operands
        for index, (value, target) in enumerate(zip(values, targets, strict=False)):
            op = value.defining_op
            if target is None or op is None or op.parent is not block or values.count(value) > 1:
                continue
            if (block.terminator, index) not in self.known.copy_at_end:
                self.placements.append(Placement(block.terminator, index, target, self.depth))
                direct[value] = target
        return direct

    def write(self, sequence: Sequence, value: Value, buffer: Buffer, position: int) -> None:
        """Copies a tile to a buffer, unless it lives there already."""
        if buffer not in self.plain.get(value, {}).values():
            sequence.add(Materialize(value, buffer, position), self.lanes_for(value, buffer))

    def keep(self, sequence: Sequence, value: Value, position: int, target: Target | None) -> None:
        """Adds what must be written as soon as a tile exists: its target, tiles to keep, operands of products."""
        if not isinstance(value.type, TensorType):
            return
        op = value.defining_op
        if target is not None and op is not None and op.name not in BUFFERED:
            self.write(sequence, value, target.buffer, position)
            self.hold(value, target.buffer)
        for axis in sorted(self.known.keep.get(value, ())):
            if axis not in self.plain.get(value, {}):
                buffer = self.buffer(value, axis)
                self.write(sequence, value, buffer, position)
                self.hold(value, buffer)
        for operand in self.by_value.get(value, ()):
            sequence.add(Materialize(value, operand, position), self.lanes_for(value, operand))

    def lanes_for(self, value: Value, into: Storage) -> int:
        """Returns the lane axis of the nest that writes a tile: the tile's own, or the buffer's where it has none."""
        axis, strength = self.axes.preference(value)
        if axis is not None and strength > 0:
            return axis
        return into.lane_axis if isinstance(into, Buffer) else into.inner_axis

    def target(self, result: OpResult, direct: dict[Value, Target]) -> Target:
        """Returns where an operation's result goes: its direct target, or a new buffer."""
        target = direct.get(result) or Target(self.buffer(result, self.axes.lane_axis(result)))
        self.hold(result, target.buffer)
        return target

    def tile_targets(self, op: Operation, direct: dict[Value, Target]) -> list[Target | None]:
        return [self.target(r, direct) if isinstance(r.type, TensorType) else None for r in op.results]

    # ---- operations ----

    def operation(self, sequence: Sequence, op: Operation, position: int, direct: dict[Value, Target]) -> None:
        tiles = any(isinstance(value.type, TensorType) for value in (*op.operands, *op.results))
        match op.name:
            case "scf.for":
                self.loop(sequence, op, position, direct)
            case "scf.if":
                targets = self.tile_targets(op, direct)
                branches = [self.block(r.block, targets) if r.blocks else [] for r in op.regions]
                sequence.append(If(op, [t.buffer if t else None for t in targets], *branches))
            case "scf.while":
                self.while_loop(sequence, op, position, direct)
            case "tt.dot":
                out = self.target(op.result, direct).buffer
                sequence.append(Dot(op, self.operands[op, 0], self.operands[op, 1], out))
            case "tt.reduce":
                into = [t.buffer if t else None for t in self.tile_targets(op, direct)]
                sequence.add(Reduce(op, into, position), self.best_lanes(op.operands))
            case "tt.scan":
                buffers = [t.buffer for t in self.tile_targets(op, direct) if t]
                sequence.add(Scan(op, buffers, position), buffers[0].lane_axis)
            case "tt.store" if tiles:
                sequence.add(Store(op, self.axes.memory_axis(op.operands[0]), position), self.store_lanes(op))
            case "tt.map_elementwise":
                mapped = [t.buffer for t in self.tile_targets(op, direct) if t]
                sequence.add(Map(op, mapped, position), len(shape_of(op.operands[0].type)) - 1)
            case "tt.histogram":
                sequence.add(Histogram(op, self.target(op.result, direct).buffer, position), 0)
            case "tt.print" | "tt.assert" if tiles:
                shape = shape_of(op.operands[0].type)
                sequence.add(Message(op, position), len(shape) - 1)
            case "tt.atomic_rmw" | "tt.atomic_cas" if tiles:
                old = self.target(op.result, direct).buffer if op.result.uses else None
                sequence.add(Atomic(op, old, position), self.store_lanes(op))
            case _ if not tiles or op.name == "tt.unsplat":
                sequence.append(Scalar(op))

    def best_lanes(self, values: list[Value]) -> int:
        axis, _ = max((self.axes.preference(value) for value in values), key=lambda preference: preference[1])
        return axis if axis is not None else len(shape_of(values[0].type)) - 1

    def store_lanes(self, op: Operation) -> int:
        axis, strength = self.axes.preference(op.operands[1])
        if axis is not None and strength > 0:
            return axis
        memory = self.axes.memory_axis(op.operands[0])
        return memory if memory is not None else len(shape_of(op.operands[0].type)) - 1

    def loop(self, sequence: Sequence, op: Operation, position: int, direct: dict[Value, Target]) -> None:
        targets = self.tile_targets(op, direct)
        inner: list[Target | None] = []
        for index, target in enumerate(targets):
            argument = op.body.arguments[index + 1]
            inner.append(Target(target.buffer, argument) if target is not None else None)
            if target is not None:
                self.write(sequence, op.operands[3 + index], target.buffer, position)
                self.hold(argument, target.buffer)
        body = self.block(op.body, inner)
        sequence.append(For(op, [t.buffer if t else None for t in targets], body))

    def while_loop(self, sequence: Sequence, op: Operation, position: int, direct: dict[Value, Target]) -> None:
        """Plans a loop whose two blocks each write what the other reads, so that neither overwrites what it still needs."""
        before, body = (region.block for region in op.regions)
        passed = self.tile_targets(op, direct)
        carried: list[Target | None] = []
        for value, argument in zip(op.operands, before.arguments, strict=True):
            tile = isinstance(value.type, TensorType)
            target = Target(self.buffer(argument, self.axes.lane_axis(argument))) if tile else None
            carried.append(target)
            if target is not None:
                self.write(sequence, value, target.buffer, position)
                self.hold(argument, target.buffer)
        for argument, target in zip(body.arguments, passed, strict=True):
            if target is not None:
                self.hold(argument, target.buffer)
        statements = self.block(before, [None, *passed])
        held, given = ([target.buffer if target else None for target in targets] for targets in (carried, passed))
        sequence.append(While(op, held, given, statements, self.block(body, carried)))


def read_in_place(dot: Operation, index: int, k_axis: int) -> InPlace | None:
    """Returns an operand as the inner loop can read it from global memory, element by element; None where it has to be packed:
    it is computed, masked, not contiguous along either axis, or memory is written between its load and the product."""
    operand = InPlace(dot.operands[index], k_axis, True)
    value = operand.value
    while value.defining_op is not None and value.defining_op.name == "tt.trans":
        value = value.defining_op.operands[0]
    load, block = value.defining_op, dot.parent
    if load is None or load.name != "tt.load" or load.parent is not block or block is None or not _always(load):
        return None
    between = block.operations[block.operations.index(load) : block.operations.index(dot)]
    if any(Effect.WRITE_GLOBAL in effects_of(op) for op in between):
        return None
    steps = strides(load.operands[0])
    _, axes = operand.source()
    along_k, along_other = (steps[axes[axis]] for axis in (k_axis, 2 * len(axes) - 3 - k_axis))
    if None in steps or 1 not in (along_k, along_other):
        return None
    operand.k_inner = along_k == 1
    return operand


def _always(load: Operation) -> bool:
    """Whether a load reads every element."""
    mask = optional_operand(load, "mask")
    return mask is None or (mask.defining_op is not None and mask.defining_op.attributes.get("value") is True)


class Sequence:
    """The statements of a block. A root joins the latest nest with its domain that it does not have to wait for."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.statements: list[Statement] = []

    def append(self, statement: Statement) -> None:
        self.statements.append(statement)

    def add(self, root: Root, lane_axis: int) -> None:
        reach = reach_of(root, self.planner.plain)
        for statement in reversed(self.statements):
            if isinstance(statement, Scalar):
                if definition(statement.op.name).pure and not reach.scalars & set(statement.op.results):
                    continue
                break
            if not isinstance(statement, Nest):
                break
            if self.joins(root, reach, statement, lane_axis):
                statement.roots.append(root)
                return
            if isinstance(root, (*WRITES, Message)) or self.waits(root, reach, statement):
                break
        self.statements.append(Nest(domain_of(root), lane_axis, [root]))

    def waits(self, root: Root, reach: Reach, nest: Nest) -> bool:
        """Whether a root needs something that a nest makes, or must stay behind its stores."""
        if reach.needs & {value for made in nest.roots for value in made_by(made)}:
            return True
        stores = [made.position for made in nest.roots if isinstance(made, WRITES)]
        return any(store < root.position for store in stores) and bool(reach.loads)

    def joins(self, root: Root, reach: Reach, nest: Nest, lane_axis: int) -> bool:
        if domain_of(root) != nest.shape or lane_axis != nest.lane_axis:
            return False
        if isinstance(root, ALONE) or turned_axis(root, lane_axis) is not None:
            return False
        for made in nest.roots:
            if isinstance(made, ALONE) or turned_axis(made, lane_axis) is not None:
                return False
            if isinstance(made, Reduce) and (
                set(made.op.results) & reach.needs or (isinstance(root, Reduce) and root.axis != made.axis)
            ):
                return False
            if isinstance(made, Materialize) and made.value in reach.elsewhere:
                return False
            if isinstance(made, Materialize) and isinstance(root, Materialize) and root.into is made.into:
                return False
            if isinstance(made, Store) and any(_position(load, root) > made.position for load in reach.loads):
                return False
            if isinstance(root, Store) and self.overwrites(root, made):
                return False
        return True

    def overwrites(self, store: Store, made: Root) -> bool:
        """Whether a store may change what another root of its nest, which comes before it, reads or stores later."""
        if isinstance(made, Store) and stores_over(store.op, made.op):
            return True
        before = reach_of(made, self.planner.plain)
        return any(overwrites(store.op, load, load.result in before.elsewhere) for load in before.loads)


def _position(load: Operation, root: Root) -> int:
    """Returns where a load stands in the block that the root is in; loads from outside come first."""
    block = load.parent
    return block.operations.index(load) if block is not None and block is block_of(root) else -1


def made_by(root: Root) -> list[Value]:
    """Returns the tiles that can be read from a buffer once a root has run."""
    match root:
        case Materialize(value, into, _, _):
            return [value] if isinstance(into, Buffer) else []
        case Store() | Message():
            return []
        case _:
            return list(root.op.results)


@dataclass
class Reach:
    """What evaluating a root's tiles touches.

    `values`: all tiles on the way; `elsewhere`: those read at another place than the one being computed; `scalars`; `loads`.
    """

    values: set[Value] = field(default_factory=set)
    elsewhere: set[Value] = field(default_factory=set)
    scalars: set[Value] = field(default_factory=set)
    loads: list[Operation] = field(default_factory=list)

    @property
    def needs(self) -> set[Value]:
        return self.values | self.scalars


def reach_of(root: Root, plain: dict[Value, dict[int, Buffer]]) -> Reach:
    """Walks from a root's tiles to what is in buffers, memory and scalars."""
    reach = Reach()
    pending = [(value, True) for value in values_of(root)]
    first = {root.value} if isinstance(root, Materialize) else set()
    seen: set[tuple[Value, bool]] = set()
    while pending:
        value, same = pending.pop()
        if (value, same) in seen:
            continue
        seen.add((value, same))
        if not isinstance(value.type, TensorType):
            reach.scalars.add(value)
            continue
        reach.values.add(value)
        if not same:
            reach.elsewhere.add(value)
        op = value.defining_op
        if op is None or op.name in BUFFERED or (value in plain and value not in first):
            continue
        if op.name == "tt.load":
            reach.loads.append(op)
        here = same and (Trait.ELEMENTWISE in definition(op.name).traits or op.name == "tt.load")
        pending += [(operand, here) for operand in op.operands]
    return reach
