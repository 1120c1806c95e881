"""Looks at a tile program for what the planner could not know before: work done twice, loads that moved, tiles overwritten early."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from kernelpack.backends.cpu.facts.affine import Stride, strides
from kernelpack.backends.cpu.facts.in_place import overwrites
from kernelpack.backends.cpu.plan.buffers import BUFFERED, Buffer, moves_unit_axes
from kernelpack.backends.cpu.plan.costs import LOAD, cost_of
from kernelpack.backends.cpu.plan.evaluations import Evaluation, Step, Writers, evaluations, steps_of
from kernelpack.backends.cpu.plan.plan_tiles import Planner
from kernelpack.backends.cpu.plan.sinks import WRITES
from kernelpack.backends.cpu.plan.tile_program import Nest, TileProgram
from kernelpack.ir import views
from kernelpack.ir.core import Block, BlockArgument, Operation, Value
from kernelpack.ir.dialect import Effect, Trait, definition, effects_of, operand
from kernelpack.ir.types import I1, TensorType, element_of, is_float, is_pointer, shape_of

_SHARE = 9  # a tile that costs this much is kept in a buffer rather than computed by two nests


class Review:
    """A look at what a planner made. What is wrong with it is added to what the planner knows, for the next plan."""

    def __init__(self, plan: Planner, program: TileProgram) -> None:
        self.plan = plan
        self.known = plan.known
        self.program = program
        self.strides: dict[Value, tuple[Stride, ...]] = {}
        self.steps = steps_of(program)
        self.evaluated = {step: evaluations(step, program.plain) for step in self.steps}
        self.number = {op: number for number, op in enumerate(program.entry.walk())}
        self.scalar_writes = [number for op, number in self.number.items() if _is_scalar_write(op)]

    # ---- tiles that are evaluated too often, or across the lanes ----

    def keep_crossing(self) -> bool:
        """Keeps costly tiles that loops would compute every time, and tiles read across the lanes."""
        learned = False
        for step in self.steps:
            inner = step.bodies()
            for value, evaluation in self.evaluated[step].items():
                op = value.defining_op
                outside = op is not None and inner - set(_block_path(op.parent))
                if op is not None and outside and self.is_virtual(value) and not is_pointer(value.type):
                    covered = all(_defined_in(parent, op.parent) for parent in evaluation.parents)
                    if not covered and self.cost(value, listed_only=True) >= LOAD:
                        learned |= self.keep(_without_copies(value))
                learned |= self.keep_across(value, evaluation)
        return learned

    def keep_across(self, value: Value, evaluation: Evaluation) -> bool:
        """Keeps a tile with another lane axis where lanes would gather: from memory that runs the other way, or a buffer."""
        shape, op, plain = shape_of(value.type), value.defining_op, self.program.plain
        computed = evaluation.written or self.is_virtual(value)
        if op is not None and op.name == "tt.reshape" and computed:
            return self.keep_reshaped(op)
        if op is not None and op.name == "tt.gather" and computed and operand(op, "src") not in plain:
            return self.keep(operand(op, "src"))
        if len(shape) < 2:
            return False
        learned = False
        for axis in evaluation.lanes:
            if axis is None:
                continue
            if value in plain and not evaluation.written:
                if axis not in plain[value] and min(shape[axis], shape[next(iter(plain[value]))]) > 1:
                    learned |= self.keep(value, axis)
                continue
            if op is not None and op.name == "tt.load":
                pointer = operand(op, "ptr")
                memory = self.plan.axes.memory_axis(pointer)
                if memory is not None and memory != axis and strides(pointer, self.strides)[axis] != 0:
                    learned |= self.keep(value, axis)
        return learned

    def keep_reshaped(self, op: Operation) -> bool:
        """Keeps the source of a reshape that moves elements: it is read from a row-major buffer."""
        source = op.operand
        last = len(shape_of(source.type)) - 1
        if moves_unit_axes(op) or last in self.program.plain.get(source, {}):
            return False
        return self.keep(source, last)

    def keep_shared(self) -> bool:
        """Keeps costly tiles that several nests would compute."""
        count: dict[Value, int] = defaultdict(int)
        parents: dict[Value, set[Value | None]] = defaultdict(set)
        for values in self.evaluated.values():
            for value, evaluation in values.items():
                count[value] += 1
                parents[value] |= evaluation.parents
        shared = {
            value
            for value, steps in count.items()
            if steps > 1
            and self.is_virtual(value)
            and element_of(value.type) != I1
            and self.cost(value, listed_only=False) >= _SHARE
        }
        learned = False
        for value in count:
            if value in shared and not parents[value] <= shared:
                learned |= self.keep(_without_copies(value))
        return learned

    def keep(self, value: Value, axis: int | None = None) -> bool:
        axis = self.plan.axes.lane_axis(value) if axis is None else axis
        if axis in self.known.keep[value]:
            return False
        self.known.keep[value].add(axis)
        return True

    def is_virtual(self, value: Value) -> bool:
        """Whether a tile is in no buffer: who reads it evaluates it."""
        op = value.defining_op
        return op is not None and op.name not in BUFFERED and value not in self.program.plain

    def cost(self, value: Value, listed_only: bool, seen: set[Value] | None = None) -> int:
        """Returns what an element costs to compute again from buffers and memory."""
        seen = set() if seen is None else seen
        op = value.defining_op
        if value in seen or op is None or not isinstance(value.type, TensorType) or not self.is_virtual(value):
            return 0
        seen.add(value)
        if not is_float(value.type) and all(stride is not None for stride in strides(value, self.strides)):
            return 0  # index arithmetic is a few scalar instructions a vector
        own = cost_of(op)
        if own is None:
            own = 1 if Trait.ELEMENTWISE in definition(op.name).traits and not listed_only else 0
        return own + sum(self.cost(operand, listed_only, seen) for operand in op.operands)

    # ---- loads that would see later stores ----

    def keep_moved_loads(self) -> bool:
        """Keeps loads whose nest runs after a store that follows the load in the program, or makes a store that overwrites their
        memory."""
        writes: dict[Step, list[Operation]] = {}
        on_path: dict[Hashable, list[tuple[int, Step]]] = defaultdict(list)
        for step in self.steps:
            roots = step.statement.roots if isinstance(step.statement, Nest) else []
            writes[step] = [root.op for root in roots if isinstance(root, WRITES)]
            on_path[step.path] += [(self.number[write], step) for write in writes[step]]
        writers = [Writers(found) for found in on_path.values()]
        learned = False
        for step in self.steps:
            for value, evaluation in self.evaluated[step].items():
                op = value.defining_op
                if op is None or op.name != "tt.load" or not self.is_virtual(value):
                    continue
                number, around = self.number[op], set(op.ancestors())
                first = [writer for found in writers if (writer := found.first_after(number)) is not None]
                moved = any(step.after(writer) or step.runs_again_after(writer, around) for writer in first) or any(
                    self.number[write] > number and overwrites(write, op, evaluation.elsewhere) for write in writes[step]
                )
                if moved or self.passes_scalar_write(op, step):
                    learned |= self.keep(value)
        return learned

    def passes_scalar_write(self, load: Operation, step: Step) -> bool:
        """Whether a scalar operation writes memory between a load and what a step does; inside of a loop or branch that follows the
        load, a step is taken to come last."""
        assert load.parent is not None
        last = step.last_operation() if step.block is load.parent else load.parent.terminator
        following = bisect_right(self.scalar_writes, self.number[load])
        return following < len(self.scalar_writes) and self.scalar_writes[following] < self.number[last]

    # ---- carried tiles that are overwritten while they are read ----

    def protect_carried(self) -> bool:
        """Finds carried tiles that are read after their buffer got its next value, and delays that value or saves the old one."""
        learned = False
        inside: dict[Block, list[Step]] = defaultdict(list)
        for step in self.steps:
            for loop in step.loops():
                inside[loop.op.body].append(step)
        for old, own in self.carried().items():
            readers = [step for step in inside[old.owner] if old in self.evaluated[step]]
            writers = [step for step in inside[old.owner] if own in step.written()]
            around = set(old.owner.terminator.ancestors())
            if any(
                reader.after(writer)
                or (reader is writer and self.evaluated[reader][old].elsewhere)
                or reader.runs_again_after(writer, around)
                for writer in writers
                for reader in readers
            ):
                self.write_later(old)
                learned = True
        return learned

    def carried(self) -> dict[BlockArgument, Buffer]:
        """Returns the buffers of the tiles that loops carry, but for those that are copied when an iteration begins."""
        return {
            argument: buffer
            for step in self.steps
            for loop in step.loops()
            for argument, buffer in zip(views.For.of(loop.op).arguments, loop.carried, strict=True)
            if buffer is not None and argument not in self.known.snapshot
        }

    def write_later(self, old: BlockArgument) -> None:
        """Has the next value of a carried tile written at the end of its block, or the tile itself copied."""
        early = [
            placement
            for placement in self.plan.placements
            if placement.old is old and (placement.terminator, placement.index) not in self.known.copy_at_end
        ]
        if early:
            deepest = max(early, key=lambda placement: placement.depth)
            self.known.copy_at_end.add((deepest.terminator, deepest.index))
        else:
            self.known.snapshot.add(old)


def _without_copies(value: Value) -> Value:
    """Returns a tile that has the elements of another one, each as seldom as may be."""
    op = value.defining_op
    while op is not None and op.name in ("tt.broadcast", "tt.expand_dims"):
        value, op = op.operand, op.operand.defining_op
    return value


@dataclass(frozen=True)
class Lesson:
    """One thing that a review looks for: `learn` adds what it finds to what the planner knows, and says whether that is new."""

    name: str
    learn: Callable[[Review], bool]


Lessons = Sequence[Sequence[Lesson]]

LESSONS: Lessons = (
    (
        Lesson("keep_crossing", Review.keep_crossing),
        Lesson("keep_moved_loads", Review.keep_moved_loads),
        Lesson("keep_shared", Review.keep_shared),
    ),
    (Lesson("protect_carried", Review.protect_carried),),
)
"""What reviews look for. All lessons of a group are learned; the next group has its turn where they found nothing."""


def learn(plan: Planner, program: TileProgram, lessons: Lessons = LESSONS) -> list[str]:
    """Adds what a plan teaches to what its planner knows. Returns the names of the lessons that found something."""
    review = Review(plan, program)
    for group in lessons:
        learned = [lesson.name for lesson in group if lesson.learn(review)]
        if learned:
            return learned
    return []


def _defined_in(value: Value | None, block: Block | None) -> bool:
    return value is not None and value.defining_op is not None and value.defining_op.parent is block


def _block_path(block: Block | None) -> Iterator[Block]:
    """Yields a block and the blocks around it."""
    while block is not None:
        yield block
        owner = block.parent.parent if block.parent is not None else None
        block = owner.parent if owner is not None else None


def _is_scalar_write(op: Operation) -> bool:
    writes = op.name in ("tt.store", "tt.atomic_rmw", "tt.atomic_cas") and Effect.WRITE_GLOBAL in effects_of(op)
    return writes and not shape_of(operand(op, "ptr").type)
