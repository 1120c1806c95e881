"""What each step of a tile program evaluates, and where: what a review of the program goes by."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kernelpack.backends.cpu.plan.buffers import BUFFERED, Buffer, Evaluated
from kernelpack.backends.cpu.plan.sinks import Materialize, buffers_of, values_of
from kernelpack.backends.cpu.plan.tile_program import Dot, For, If, Nest, Statement, TileProgram, While
from kernelpack.ir.core import Block, Operation, Value
from kernelpack.ir.dialect import Trait, definition, operand, operand_name
from kernelpack.ir.types import TensorType, shape_of


@dataclass(frozen=True, eq=False)
class Step:
    """A statement that evaluates tiles, with where it stands: its block, `order` in the program, and the branches and loops around it."""

    statement: Nest | Dot
    block: Block
    order: int
    path: tuple[tuple[For | If | While, int], ...]

    def last_operation(self) -> Operation:
        """Returns the last of the operations in its block that it stands for."""
        if isinstance(self.statement, Dot):
            return self.statement.op
        return self.block.operations[max(root.position for root in self.statement.roots)]

    def values(self) -> list[Value]:
        """Returns what it evaluates at every place of its domain."""
        if isinstance(self.statement, Dot):
            sides = (self.statement.a, self.statement.b)
            return [operand(self.statement.op, "c"), *(side.value for side in sides if isinstance(side, Evaluated))]
        return [value for root in self.statement.roots for value in values_of(root)]

    def materialized(self) -> set[Value]:
        """Returns the tiles that it computes and writes to buffers."""
        if isinstance(self.statement, Dot):
            return set()
        return {root.value for root in self.statement.roots if isinstance(root, Materialize)}

    def written(self) -> set[Buffer]:
        """Returns the buffers that it writes tiles to."""
        if isinstance(self.statement, Dot):
            return {self.statement.out}
        written = [buffer for root in self.statement.roots for buffer in buffers_of(root)]
        return {buffer for buffer in written if isinstance(buffer, Buffer)}

    def loops(self) -> list[For]:
        return [outer for outer, _ in self.path if isinstance(outer, For)]

    def bodies(self) -> set[Block]:
        """Returns the blocks of the loops around it that run once an iteration."""
        return {outer.op.regions[part].block for outer, part in self.path if not isinstance(outer, If)}

    def after(self, other: Step) -> bool:
        """Whether this step can run after `other` in one iteration of the loops they share."""
        for (mine, my_branch), (theirs, their_branch) in zip(self.path, other.path, strict=False):
            if mine is theirs and my_branch != their_branch:
                return isinstance(mine, While) and my_branch > their_branch
            if mine is not theirs:
                break
        return self.order > other.order

    def runs_again_after(self, other: Step, around: Collection[Operation]) -> bool:
        """Whether a loop in which both are, and that is not one of `around`, runs this step after `other`."""
        shared = (mine.op for (mine, _), (theirs, _) in zip(self.path, other.path, strict=False) if mine is theirs)
        return any(loop.name != "scf.if" and loop not in around for loop in shared)


class Writers:
    """Steps with the same branches and loops around them that write memory. Each write has its number in the program."""

    def __init__(self, writes: Iterable[tuple[int, Step]]) -> None:
        ordered = sorted(writes, key=operator.itemgetter(0))
        self._numbers = [number for number, _ in ordered]
        self._first = [step for _, step in ordered]
        for place in reversed(range(len(ordered) - 1)):
            self._first[place] = min(self._first[place], self._first[place + 1], key=lambda step: step.order)

    def first_after(self, number: int) -> Step | None:
        """Returns the step that runs first of those with a write after an operation of this number, if there is one."""
        place = bisect_right(self._numbers, number)
        return self._first[place] if place < len(self._first) else None


@dataclass(eq=False)
class Evaluation:
    """A tile that a step evaluates.

    `lanes`: the axes that run along the lanes where it is read (None: one element for all lanes). `elsewhere`: whether it is
    read at another place than the one being computed. `parents`: the tiles it is evaluated for. `written`: the step writes
    it to a buffer, so it is computed rather than read.
    """

    lanes: set[int | None] = field(default_factory=set)
    elsewhere: bool = False
    parents: set[Value | None] = field(default_factory=set)
    written: bool = False


def steps_of(program: TileProgram) -> list[Step]:
    """Returns the steps of a program, in its order."""
    steps: list[Step] = []

    def add(statements: list[Statement], block: Block, path: tuple[tuple[For | If | While, int], ...]) -> None:
        for statement in statements:
            match statement:
                case Nest() | Dot():
                    steps.append(Step(statement, block, len(steps), path))
                case For() | If() | While():
                    for part, inside in enumerate(statement.parts()):
                        if inside:
                            add(inside, statement.op.regions[part].block, (*path, (statement, part)))

    add(program.statements, program.entry.body, ())
    return steps


def evaluations(step: Step, plain: Mapping[Value, Mapping[int, Buffer]]) -> dict[Value, Evaluation]:
    """Returns the tiles that a step evaluates on the way to what is in memory, scalars, or the buffers of `plain`."""
    found: dict[Value, Evaluation] = defaultdict(Evaluation)
    computed = step.materialized()
    pending: list[tuple[Value, int | None, bool, Value | None]] = [
        (value, step.statement.lane_axis, False, None) for value in step.values()
    ]
    seen: set[tuple[Value, int | None, bool]] = set()
    while pending:
        value, axis, elsewhere, parent = pending.pop()
        if not isinstance(value.type, TensorType):
            continue
        if axis is not None and shape_of(value.type)[axis] == 1:
            axis = None
        entry = found[value]
        entry.lanes.add(axis)
        entry.elsewhere |= elsewhere
        entry.parents.add(parent)
        entry.written |= value in computed and not elsewhere
        if (value, axis, elsewhere) in seen:
            continue
        seen.add((value, axis, elsewhere))
        op = value.defining_op
        if op is None or op.name in BUFFERED or (value in plain and (value not in computed or elsewhere)):
            continue
        same = Trait.ELEMENTWISE in definition(op.name).traits or op.name == "tt.load"
        for position, source in enumerate(op.operands):
            pending.append((source, _operand_axis(op, position, axis), elsewhere or not same, value))
    return dict(found)


def _operand_axis(op: Operation, position: int, axis: int | None) -> int | None:
    """Returns which axis of the operand at `position` runs along the lanes when `axis` of the result does."""
    if axis is None:
        return None
    match op.name:
        case "tt.expand_dims":
            inserted = op.attributes["axis"]
            return None if axis == inserted else axis - (axis > inserted)
        case "tt.trans":
            return int(op.attributes["order"][axis])
        case "tt.reshape":
            source = shape_of(op.operand.type)
            return len(source) - 1 if axis == len(shape_of(op.result.type)) - 1 else None
        case "tt.join":
            return axis if axis < len(shape_of(operand(op, "lhs").type)) else None
        case "tt.splat":
            return None
        case "tt.gather" if operand_name(op, position) == "src":
            return None
        case _:
            return axis
