"""Views of structured control flow: names for its operands, blocks, and the values that it passes along.

Rows of the dialect tables name the operands of every operation: `operand(op, "ptr")`. A view says what a row cannot: which
operands, block arguments and results belong together. It holds nothing but the operation, and shows it as it is when asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernelpack.ir.core import Block, BlockArgument, Operation, OpResult, Value
from kernelpack.ir.dialect import operand, operands_called

STRUCTURED = ("scf.if", "scf.for", "scf.while")
LOOPS = ("scf.for", "scf.while")

_BOUNDS = 3
"""How many operands of an scf.for come before the values that it carries."""


@dataclass(frozen=True)
class Slot:
    """One value that control flow passes along: the values it becomes, and the operands (operation, index) it comes from."""

    values: tuple[Value, ...]
    sources: tuple[tuple[Operation, int], ...]

    def source_values(self) -> list[Value]:
        return [op.operands[index] for op, index in self.sources]


class Carried(Slot):
    """A slot of an scf.for: result and body argument, from the initial value and what each iteration yields."""

    @property
    def result(self) -> OpResult:
        result, _ = self.values
        assert isinstance(result, OpResult)
        return result

    @property
    def argument(self) -> BlockArgument:
        _, argument = self.values
        assert isinstance(argument, BlockArgument)
        return argument

    @property
    def initial(self) -> Value:
        op, index = self.sources[0]
        return op.operands[index]

    @property
    def yielded(self) -> Value:
        op, index = self.sources[1]
        return op.operands[index]

    def begin_with(self, value: Value) -> None:
        """Replaces the initial value."""
        op, index = self.sources[0]
        op.set_operand(index, value)

    def go_on_with(self, value: Value) -> None:
        """Replaces what each iteration yields."""
        op, index = self.sources[1]
        op.set_operand(index, value)


@dataclass(frozen=True)
class For:
    """An scf.for: counts from `lower` by `step` as long as it is below `upper`."""

    op: Operation

    @staticmethod
    def of(op: Operation) -> For:
        return For(_expect(op, "scf.for"))

    @property
    def lower(self) -> Value:
        return operand(self.op, "lower")

    @property
    def upper(self) -> Value:
        return operand(self.op, "upper")

    @property
    def step(self) -> Value:
        return operand(self.op, "step")

    @property
    def bounds(self) -> Sequence[Value]:
        """Lower bound, upper bound and step."""
        return self.op.operands[:_BOUNDS]

    @property
    def induction(self) -> BlockArgument:
        """What counts."""
        return self.op.body.arguments[0]

    @property
    def initial(self) -> Sequence[Value]:
        return self.op.operands[_BOUNDS:]

    @property
    def arguments(self) -> Sequence[BlockArgument]:
        """The carried values, as the body takes them."""
        return self.op.body.arguments[1:]

    @property
    def yielded(self) -> Sequence[Value]:
        return self.op.body.terminator.operands

    @property
    def carried(self) -> list[Carried]:
        """Each carried value by itself."""
        return [self.carries(index) for index in range(len(self.op.results))]

    def carries(self, index: int) -> Carried:
        """Returns the carried value that result `index` is at last."""
        op, body = self.op, self.op.body
        return Carried((op.results[index], body.arguments[1 + index]), ((op, _BOUNDS + index), (body.terminator, index)))


@dataclass(frozen=True)
class If:
    """An scf.if: what one of two blocks yields. A block that does nothing may be missing."""

    op: Operation

    @staticmethod
    def of(op: Operation) -> If:
        return If(_expect(op, "scf.if"))

    @property
    def condition(self) -> Value:
        return self.op.operand

    @property
    def branches(self) -> list[Block]:
        """The blocks that are there: then, else."""
        return [region.block for region in self.op.regions if region.blocks]

    @property
    def chosen(self) -> list[Slot]:
        """Of each result, the slot: it comes from both yields."""
        return [self.chooses(index) for index in range(len(self.op.results))]

    def chooses(self, index: int) -> Slot:
        return Slot((self.op.results[index],), tuple((block.terminator, index) for block in self.branches))


@dataclass(frozen=True)
class While:
    """An scf.while: `before` takes the carried values, decides, and passes values on to `after`, which yields the next ones.

    It has two kinds of slots. `tested`: an argument of `before`, from the initial value and what `after` yields. `passed`: a
    result and an argument of `after`, from what `before` passes on.
    """

    op: Operation

    @staticmethod
    def of(op: Operation) -> While:
        return While(_expect(op, "scf.while"))

    @property
    def before(self) -> Block:
        return self.op.regions[0].block

    @property
    def after(self) -> Block:
        return self.op.regions[1].block

    @property
    def condition(self) -> Value:
        return operand(self.before.terminator, "condition")

    @property
    def initial(self) -> Sequence[Value]:
        return self.op.operands

    @property
    def passed_on(self) -> Sequence[Value]:
        """What `before` passes to `after`, and gives as the results at last."""
        return operands_called(self.before.terminator, "values")

    @property
    def yielded(self) -> Sequence[Value]:
        return self.after.terminator.operands

    @property
    def tested(self) -> list[Slot]:
        return [self.tests(index) for index in range(len(self.op.operands))]

    @property
    def passed(self) -> list[Slot]:
        return [self.passes(index) for index in range(len(self.op.results))]

    def tests(self, index: int) -> Slot:
        return Slot((self.before.arguments[index],), ((self.op, index), (self.after.terminator, index)))

    def passes(self, index: int) -> Slot:
        return Slot((self.op.results[index], self.after.arguments[index]), ((self.before.terminator, 1 + index),))


def slots(op: Operation) -> Sequence[Slot]:
    """Returns the slots of a structured operation, in order; none for other operations."""
    match op.name:
        case "scf.for":
            return For(op).carried
        case "scf.if":
            return If(op).chosen
        case "scf.while":
            return [*While(op).tested, *While(op).passed]
    return ()


def slot_of(value: Value) -> Slot | None:
    """Returns the slot that a value belongs to; None for what an operation computes, a loop counts, or a function takes."""
    if isinstance(value, OpResult):
        op, index = value.owner, value.index
        match op.name:
            case "scf.for":
                return For(op).carries(index)
            case "scf.if":
                return If(op).chooses(index)
            case "scf.while":
                return While(op).passes(index)
        return None
    assert isinstance(value, BlockArgument)
    region, index = value.owner.parent, value.index
    around = region.parent if region is not None else None
    if around is not None and around.name == "scf.for":
        return For(around).carries(index - 1) if index else None
    if around is not None and around.name == "scf.while":
        return While(around).tests(index) if region is around.regions[0] else While(around).passes(index)
    return None


def slot_fed_by(op: Operation, index: int) -> Slot | None:
    """Returns the slot that an operand is a source of: of a loop's initial values, of a yield, or of an scf.condition."""
    around = op.parent_op
    match op.name:
        case "scf.for":
            return For(op).carries(index - _BOUNDS) if index >= _BOUNDS else None
        case "scf.while":
            return While(op).tests(index)
        case "scf.condition":
            return While.of(around).passes(index - 1) if around is not None and index else None
        case "scf.yield" if around is not None:
            match around.name:
                case "scf.for":
                    return For(around).carries(index)
                case "scf.if":
                    return If(around).chooses(index)
                case "scf.while":
                    return While(around).tests(index)
    return None


def decided_by(op: Operation) -> Sequence[Value]:
    """Returns the values that decide which regions of a structured operation run, and how often."""
    match op.name:
        case "scf.for":
            return For(op).bounds
        case "scf.while":
            return [While(op).condition]
    return [If.of(op).condition]


def erase_slots(dead: Iterable[Slot]) -> None:
    """Removes slots whose values nobody uses but other slots of the same call."""
    dead = list(dead)
    indexes: dict[Operation, set[int]] = {}
    for slot in dead:
        for op, index in slot.sources:
            indexes.setdefault(op, set()).add(index)
    for op, gone in indexes.items():
        op.set_operands([value for index, value in enumerate(op.operands) if index not in gone])
    for slot in dead:
        for value in slot.values:
            if isinstance(value, OpResult):
                value.owner.erase_result(value.index)
            elif isinstance(value, BlockArgument):
                value.owner.erase_argument(value.index)


def _expect(op: Operation, name: str) -> Operation:
    if op.name != name:
        raise ValueError(f"{op.name} is no {name}")
    return op


def is_zero(value: Value) -> bool:
    """Whether a scalar, or every element of a tensor, is a constant zero, of either sign."""
    op = value.defining_op
    return op is not None and op.name == "arith.constant" and op.attributes["value"] == 0


def factors(product: Operation) -> tuple[Value, Value]:
    """Returns the two tiles that a matrix product of any dialect multiplies: what it adds is `operand(product, "c")`."""
    a, b, _ = product.operands
    return a, b
