"""Looks at a tile program for what the planner could not know before: work done twice, loads that moved, tiles overwritten early."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from kernelpack.backends.cpu.affine import strides
from kernelpack.backends.cpu.in_place import overwrites
from kernelpack.backends.cpu.plan_tiles import BUFFERED, Knowledge, Placement, Planner
from kernelpack.backends.cpu.tile_program import (
    WRITES,
    Atomic,
    Buffer,
    Dot,
    For,
    Histogram,
    If,
    Map,
    Materialize,
    Nest,
    Reduce,
    Scan,
    Statement,
    TileProgram,
    While,
    moves_unit_axes,
    values_of,
)
from kernelpack.ir.core import Block, BlockArgument, Operation, Value
from kernelpack.ir.dialect import Effect, Trait, definition, effects_of
from kernelpack.ir.types import I1, TensorType, element_of, is_float, is_pointer, shape_of

# what evaluating one element costs, in simple vector instructions
_COST = {
    **dict.fromkeys(("math.exp", "math.exp2", "math.log", "math.log2", "math.tanh", "math.erf", "math.log1p"), 12),
    **dict.fromkeys(("math.sin", "math.cos"), 40),
    **dict.fromkeys(("arith.divf", "tt.precise_divf", "math.sqrt", "math.rsqrt", "tt.precise_sqrt", "arith.remf"), 6),
    **dict.fromkeys(("arith.divsi", "arith.divui", "arith.remsi", "arith.remui"), 20),
    "tt.load": 3,
    "tt.gather": 3,
}
_SHARE = 9  # a tile that costs this much is kept in a buffer rather than computed by two nests


@dataclass(frozen=True, eq=False)
class Step:
    """A statement that evaluates tiles, with where it stands: `order` in the program, and the branches and loops around it."""

    statement: Nest | Dot
    order: int
    path: tuple[tuple[Statement, int], ...]

    def loops(self) -> list[For]:
        return [outer for outer, _ in self.path if isinstance(outer, For)]

    def bodies(self) -> set[Block]:
        """Returns the blocks of the loops around it that run once an iteration."""
        return {
            outer.op.regions[part if isinstance(outer, While) else 0].block
            for outer, part in self.path
            if isinstance(outer, (For, While))
        }

    def after(self, other: Step) -> bool:
        """Whether this step can run after `other` in one iteration of the loops they share."""
        for (mine, my_branch), (theirs, their_branch) in zip(self.path, other.path, strict=False):
            if mine is theirs and my_branch != their_branch:
                return isinstance(mine, While) and my_branch > their_branch
            if mine is not theirs:
                break
        return self.order > other.order


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


def review(plan: Planner, program: TileProgram, known: Knowledge) -> bool:
    """Adds to `known` what is wrong with the plan; returns whether there was anything."""
    steps = list(_steps(program.statements, (), [0]))
    evaluated = {step: _evaluate(step, program) for step in steps}
    learned = _keep_crossing(plan, program, steps, evaluated, known)
    learned |= _keep_moved_loads(plan, program, steps, evaluated, known)
    learned |= _keep_shared(plan, evaluated, known)
    return learned or _protect_carried(plan, program, steps, evaluated, known)


def _steps(statements: list[Statement], path: tuple[tuple[Statement, int], ...], counter: list[int]) -> Iterator[Step]:
    for statement in statements:
        counter[0] += 1
        match statement:
            case Nest() | Dot():
                yield Step(statement, counter[0], path)
            case For():
                yield from _steps(statement.body, (*path, (statement, 0)), counter)
            case While():
                yield from _steps(statement.before, (*path, (statement, 0)), counter)
                yield from _steps(statement.body, (*path, (statement, 1)), counter)
            case If():
                yield from _steps(statement.then, (*path, (statement, 0)), counter)
                yield from _steps(statement.otherwise, (*path, (statement, 1)), counter)
            case _:
                pass


def _evaluate(step: Step, program: TileProgram) -> dict[Value, Evaluation]:
    """Returns every tile that a step evaluates, with the lane axis it needs there (None: one element for all lanes)."""
    statement = step.statement
    roots: list[Value] = []
    first: set[Value] = set()
    if isinstance(statement, Nest):
        for root in statement.roots:
            roots += values_of(root)
            if isinstance(root, Materialize):
                first.add(root.value)
    else:
        roots.append(statement.op.operands[2])
    found: dict[Value, Evaluation] = defaultdict(Evaluation)
    pending: list[tuple[Value, int | None, bool, Value | None]] = [(value, statement.lane_axis, False, None) for value in roots]
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
        entry.written |= value in first and not elsewhere
        if (value, axis, elsewhere) in seen:
            continue
        seen.add((value, axis, elsewhere))
        op = value.defining_op
        if op is None or op.name in BUFFERED or (value in program.plain and (value not in first or elsewhere)):
            continue
        same = Trait.ELEMENTWISE in definition(op.name).traits or op.name == "tt.load"
        for position, operand in enumerate(op.operands):
            at = None if op.name == "tt.gather" and position == 0 else _operand_axis(op, axis)
            pending.append((operand, at, elsewhere or not same, value))
    return dict(found)


def _operand_axis(op: Operation, axis: int | None) -> int | None:
    """Returns which axis of an operand runs along the lanes when `axis` of the result does."""
    if axis is None:
        return None
    match op.name:
        case "tt.expand_dims":
            inserted = op.attributes["axis"]
            return None if axis == inserted else axis - (axis > inserted)
        case "tt.trans":
            return int(op.attributes["order"][axis])
        case "tt.reshape":
            source = shape_of(op.operands[0].type)
            return len(source) - 1 if axis == len(shape_of(op.result.type)) - 1 else None
        case "tt.join":
            return axis if axis < len(shape_of(op.operands[0].type)) else None
        case "tt.splat":
            return None
        case _:
            return axis


def _is_virtual(value: Value, plan: Planner) -> bool:
    op = value.defining_op
    return op is not None and op.name not in BUFFERED and value not in plan.plain


def _cost(value: Value, plan: Planner, listed_only: bool, seen: set[Value] | None = None) -> int:
    """Returns what an element costs to compute again from buffers and memory."""
    seen = set() if seen is None else seen
    op = value.defining_op
    if value in seen or op is None or not isinstance(value.type, TensorType) or not _is_virtual(value, plan):
        return 0
    seen.add(value)
    if not is_float(value.type) and all(stride is not None for stride in strides(value)):
        return 0  # index arithmetic is a few scalar instructions a vector
    own = _COST.get(op.name)
    if own is None:
        own = 1 if Trait.ELEMENTWISE in definition(op.name).traits and not listed_only else 0
    return own + sum(_cost(operand, plan, listed_only, seen) for operand in op.operands)


def _defined_in(value: Value | None, block: Block | None) -> bool:
    return value is not None and value.defining_op is not None and value.defining_op.parent is block


def _block_path(block: Block | None) -> Iterator[Block]:
    """Yields a block and the blocks around it."""
    while block is not None:
        yield block
        owner = block.parent.parent if block.parent is not None else None
        block = owner.parent if owner is not None else None


def _keep(known: Knowledge, plan: Planner, value: Value, axis: int | None = None) -> bool:
    axis = plan.axes.lane_axis(value) if axis is None else axis
    if axis in known.keep[value]:
        return False
    known.keep[value].add(axis)
    return True


def _keep_crossing(
    plan: Planner,
    program: TileProgram,
    steps: list[Step],
    evaluated: dict[Step, dict[Value, Evaluation]],
    known: Knowledge,
) -> bool:
    """Keeps costly tiles that loops would compute every time, and tiles read across the lanes."""
    learned = False
    for step in steps:
        inner = step.bodies()
        for value, evaluation in evaluated[step].items():
            op = value.defining_op
            outside = op is not None and inner - set(_block_path(op.parent))
            if op is not None and outside and _is_virtual(value, plan) and not is_pointer(value.type):
                covered = all(_defined_in(parent, op.parent) for parent in evaluation.parents)
                if not covered and _cost(value, plan, listed_only=True) >= _COST["tt.load"]:
                    learned |= _keep(known, plan, value)
            learned |= _keep_across(plan, program, value, evaluation, known)
    return learned


def _keep_across(plan: Planner, program: TileProgram, value: Value, evaluation: Evaluation, known: Knowledge) -> bool:
    """Keeps a tile with another lane axis where lanes would gather: from memory that runs the other way, or a buffer."""
    shape, op = shape_of(value.type), value.defining_op
    computed = evaluation.written or _is_virtual(value, plan)
    if op is not None and op.name == "tt.reshape" and computed:
        return _keep_reshaped(plan, program, op, known)
    if op is not None and op.name == "tt.gather" and computed and op.operands[0] not in program.plain:
        return _keep(known, plan, op.operands[0])
    if len(shape) < 2:
        return False
    learned = False
    for axis in evaluation.lanes:
        if axis is None:
            continue
        if value in program.plain and not evaluation.written:
            if axis not in program.plain[value] and min(shape[axis], shape[next(iter(program.plain[value]))]) > 1:
                learned |= _keep(known, plan, value, axis)
            continue
        if op is not None and op.name == "tt.load":
            memory = plan.axes.memory_axis(op.operands[0])
            if memory is not None and memory != axis and strides(op.operands[0])[axis] != 0:
                learned |= _keep(known, plan, value, axis)
    return learned


def _keep_reshaped(plan: Planner, program: TileProgram, op: Operation, known: Knowledge) -> bool:
    """Keeps the source of a reshape that moves elements: it is read from a row-major buffer."""
    source = op.operands[0]
    last = len(shape_of(source.type)) - 1
    if moves_unit_axes(op) or last in program.plain.get(source, {}):
        return False
    return _keep(known, plan, source, last)


def _keep_moved_loads(
    plan: Planner,
    program: TileProgram,
    steps: list[Step],
    evaluated: dict[Step, dict[Value, Evaluation]],
    known: Knowledge,
) -> bool:
    """Keeps loads whose nest runs after a store that follows the load in the program, or makes a store that overwrites their memory."""
    number = {op: index for index, op in enumerate(program.entry.walk())}
    writes = [
        (step, root.op)
        for step in steps
        if isinstance(step.statement, Nest)
        for root in step.statement.roots
        if isinstance(root, WRITES)
    ]
    learned = False
    for step in steps:
        for value, evaluation in evaluated[step].items():
            op = value.defining_op
            if op is None or op.name != "tt.load" or not _is_virtual(value, plan):
                continue
            here = number[op]
            moved = any(
                number[write] > here
                and (step.after(writer) if writer is not step else overwrites(write, op, evaluation.elsewhere))
                for writer, write in writes
            )
            scalar_writes = any(
                Effect.WRITE_GLOBAL in effects_of(between)
                for between in _between(op, step)
                if between.name in ("tt.store", "tt.atomic_rmw", "tt.atomic_cas") and not shape_of(between.operands[0].type)
            )
            if moved or scalar_writes:
                learned |= _keep(known, plan, value)
    return learned


def _between(load: Operation, step: Step) -> list[Operation]:
    """Returns the operations that stand behind a load in its block, up to what the step computes."""
    assert load.parent is not None
    ops = load.parent.operations
    last = len(ops)
    statement = step.statement
    position = statement.op if isinstance(statement, Dot) else None
    if isinstance(statement, Nest):
        positions = [root.position for root in statement.roots]
        owners = [root.op if not isinstance(root, Materialize) else root.value.defining_op for root in statement.roots]
        if all(owner is not None and owner.parent is load.parent for owner in owners):
            last = max(positions)
    elif position is not None and position.parent is load.parent:
        last = ops.index(position)
    return [inner for op in ops[ops.index(load) + 1 : last] for inner in op.walk()]


def _keep_shared(plan: Planner, evaluated: dict[Step, dict[Value, Evaluation]], known: Knowledge) -> bool:
    """Keeps costly tiles that several nests would compute."""
    steps_of: dict[Value, list[Step]] = defaultdict(list)
    parents: dict[Value, set[Value | None]] = defaultdict(set)
    for step, values in evaluated.items():
        for value, evaluation in values.items():
            steps_of[value].append(step)
            parents[value] |= evaluation.parents
    shared = {
        value
        for value, steps in steps_of.items()
        if len(steps) > 1
        and _is_virtual(value, plan)
        and element_of(value.type) != I1
        and _cost(value, plan, listed_only=False) >= _SHARE
    }
    learned = False
    for value in steps_of:
        if value in shared and not all(parent in shared for parent in parents[value]):
            learned |= _keep(known, plan, value)
    return learned


def _protect_carried(
    plan: Planner,
    program: TileProgram,
    steps: list[Step],
    evaluated: dict[Step, dict[Value, Evaluation]],
    known: Knowledge,
) -> bool:
    """Finds carried tiles that are read after their buffer got its next value, and delays that value or saves the old one."""
    writers: dict[Buffer, list[Step]] = defaultdict(list)
    for step in steps:
        for buffer in _written(step.statement):
            writers[buffer].append(step)
    by_old: dict[Value, list[Placement]] = defaultdict(list)
    carried: dict[BlockArgument, Buffer] = {}
    for loop in (outer for step in steps for outer in step.loops()):
        for argument, held in zip(loop.op.body.arguments[1:], loop.carried, strict=True):
            if held is not None and argument not in known.snapshot:
                carried[argument] = held
    for placement in plan.placements:
        if placement.target.old is not None:
            by_old[placement.target.old].append(placement)
    learned = False
    for old, own in carried.items():
        body = old.owner
        inside = [step for step in steps if any(outer.op.body is body for outer in step.loops())]
        writing = [step for step in writers[own] if step in inside]
        readers = [step for step in inside if old in evaluated[step]]
        broken = any(
            reader.after(writer) or (reader is writer and evaluated[reader][old].elsewhere)
            for writer in writing
            for reader in readers
        )
        if broken:
            early = [p for p in by_old[old] if (p.terminator, p.index) not in known.copy_at_end]
            if early:
                deepest = max(early, key=lambda placement: placement.depth)
                known.copy_at_end.add((deepest.terminator, deepest.index))
            else:
                known.snapshot.add(old)
            learned = True
    return learned


def _written(statement: Statement) -> list[Buffer]:
    if isinstance(statement, Dot):
        return [statement.out]
    written: list[Buffer] = []
    if isinstance(statement, Nest):
        for root in statement.roots:
            match root:
                case Materialize(_, into, _, _) if isinstance(into, Buffer):
                    written.append(into)
                case Reduce() | Scan():
                    written += [buffer for buffer in root.into if buffer is not None]
                case Atomic(_, into) | Histogram(_, into) if into is not None:
                    written.append(into)
                case Map():
                    written += root.into
    return written
