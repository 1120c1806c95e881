"""The tile-loop level: what a kernel does on a CPU as a list of loop nests over tiles, matrix products and scratch buffers.

A tile lives in a *buffer* only where it must (loop-carried, operand of a product, used by several nests); everything else is
recomputed element by element inside the nest that consumes it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.cpu.facts.affine import Bound
from kernelpack.backends.cpu.facts.data_uses import used_as_data
from kernelpack.backends.cpu.facts.features import Level
from kernelpack.backends.cpu.facts.observed import Observed
from kernelpack.backends.cpu.plan.buffers import Buffer, InPlace, Naming, Operand, OperandBuffer, Storage
from kernelpack.backends.cpu.plan.sinks import Root
from kernelpack.ir import views
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import definition, operand
from kernelpack.ir.text import value_names


@dataclass(eq=False)
class Nest:
    """A loop nest over `shape` with vector lanes along `lane_axis`, doing all its roots at every place."""

    shape: tuple[int, ...]
    lane_axis: int
    roots: list[Root]


@dataclass(eq=False)
class Dot:
    """A matrix product: out = a b + c, with `lane_axis` of the result in vector lanes. c is evaluated where out is first touched. Where
    `ends` do not hold, by axis and with the place along it added, nothing is to be written."""

    op: Operation
    a: Operand
    b: Operand
    out: Buffer
    ends: Mapping[int, Bound] = field(default_factory=dict)

    @property
    def depth(self) -> Bound | None:
        """What holds, with the place along k added, wherever operands are not both zero."""
        return next((side.depth for side in (self.a, self.b) if not isinstance(side, InPlace)), None)

    @property
    def lane_axis(self) -> int:
        return self.out.inner_axis

    @property
    def along_k(self) -> bool:
        """Whether the inner loop has k in the lanes, and sums of lanes are the result."""
        return self.a.k_inner and self.b.k_inner

    @property
    def tile_lane_axis(self) -> int:
        """The axis of the result along the rows of tiles: it is that of the operand whose neighbours along k are in units."""
        rank = len(self.out.shape)
        return rank - 2 if isinstance(self.a, OperandBuffer) and not self.a.k_inner else rank - 1

    def in_tiles(self, level: Level) -> bool:
        """Whether it takes AMX's tiles: at a level that has them neighbours along k share units of 32 bits for tiles alone, but for those
        in the lanes."""
        packs = any(isinstance(side, OperandBuffer) and side.pack > 1 for side in (self.a, self.b))
        return level.tiles and packs and not self.along_k


@dataclass(eq=False)
class Scalar:
    """A scalar operation."""

    op: Operation


@dataclass(eq=False)
class For:
    """A loop; tiles it carries live in `carried` (None for scalars). Where it has no iteration, `fills` write zeros to some of them; in its
    first iteration, products take these as zero."""

    op: Operation
    carried: list[Buffer | None]
    body: list[Statement] = field(default_factory=list)
    fills: list[Nest] = field(default_factory=list)

    def parts(self) -> Sequence[list[Statement]]:
        """Returns the statements of each region."""
        return (self.body,)


@dataclass(eq=False)
class If:
    """A branch; tiles it gives live in `results` (None for scalars)."""

    op: Operation
    results: list[Buffer | None]
    then: list[Statement] = field(default_factory=list)
    otherwise: list[Statement] = field(default_factory=list)

    def parts(self) -> Sequence[list[Statement]]:
        """Returns the statements of each region."""
        return (self.then, self.otherwise)


@dataclass(eq=False)
class While:
    """A loop with a condition. Tiles that the condition block takes live in `carried`, those it passes on in `passed`."""

    op: Operation
    carried: list[Buffer | None]
    passed: list[Buffer | None]
    before: list[Statement] = field(default_factory=list)
    body: list[Statement] = field(default_factory=list)

    def parts(self) -> Sequence[list[Statement]]:
        """Returns the statements of each region."""
        return (self.before, self.body)


Statement = Nest | Dot | Scalar | For | If | While


@dataclass(eq=False)
class TileProgram:
    """One kernel at the tile-loop level.

    `buffers` are all scratch buffers; `plain` says which buffers hold a tile for evaluation, by innermost axis; `entry` is the
    kernel's function.
    """

    entry: Operation
    statements: list[Statement]
    buffers: list[Storage]
    plain: dict[Value, dict[int, Buffer]]

    @functools.cached_property
    def data(self) -> frozenset[Value]:
        """The values that the kernel works with. Other integers are places, which index arithmetic takes not to wrap."""
        return used_as_data(self.entry)

    @functools.cached_property
    def observed(self) -> Observed:
        """How far along each axis the kernel looks at its tiles."""
        return Observed(self.entry, self.neighbours)

    @functools.cached_property
    def neighbours(self) -> AxisInfoAnalysis:
        """What is known of neighbouring elements of integer tiles."""
        return AxisInfoAnalysis(self.entry)

    def __str__(self) -> str:
        """Values have the names of the kernel's ttir (`kernelpack inspect --stage cpu_ttir`), constants are written as they are."""
        name = naming(self.entry)
        held: dict[Storage, list[str]] = {buffer: [] for buffer in self.buffers}
        for value, buffers in self.plain.items():
            for buffer in buffers.values():
                held[buffer].append(name(value))
        parameters = ", ".join(f"{name(a)}: {a.type}" for a in self.entry.body.arguments)
        lines = [f"kernel {self.entry.attributes['sym_name']}({parameters})"]
        lines += [f"  buffer {buffer}{', holds ' if names else ''}{', '.join(names)}" for buffer, names in held.items()]
        lines += _lines(self.statements, name, 1)
        return "\n".join(lines) + "\n"


def walk(statements: list[Statement]) -> Iterator[Statement]:
    """Yields all statements, nested ones too, in program order."""
    for statement in statements:
        yield statement
        if isinstance(statement, (For, If, While)):
            for part in statement.parts():
                yield from walk(part)


def naming(function: Operation) -> Naming:
    """Returns what the values of a kernel are called where people read its tile program."""
    names = value_names(function)

    def name(value: Value) -> str:
        op = value.defining_op
        return str(op.attributes["value"]) if op is not None and op.name == "arith.constant" else names[value]

    return name


def _lines(statements: list[Statement], name: Naming, depth: int) -> list[str]:
    pad, lines = "  " * depth, []
    for statement in statements:
        match statement:
            case Nest():
                shape = "x".join(map(str, statement.shape))
                lines.append(f"{pad}nest {shape}, lanes {statement.lane_axis}")
                lines += [f"{pad}  {root.text(name)}" for root in statement.roots]
            case Dot():
                a, b = (_operand_text(side, name) for side in (statement.a, statement.b))
                inner = ", k in the lanes" if statement.along_k else ""
                rank = len(statement.out.shape)
                bounds = {rank - 2: "m", rank - 1: "n"}
                inner += f", k{_bound_text(statement.depth, name)}" if statement.depth is not None else ""
                inner += "".join(f", {bounds[axis]}{_bound_text(bound, name)}" for axis, bound in statement.ends.items())
                lines.append(f"{pad}{statement.out.name} <- {a} * {b} + {name(operand(statement.op, 'c'))}{inner}")
            case Scalar() if statement.op.name != "arith.constant":
                lines.append(pad + _scalar_text(statement.op, name))
            case For():
                induction = name(views.For.of(statement.op).induction)
                lines.append(f"{pad}for {induction}{_buffers_text('carrying', statement.carried)}")
                lines += _lines(statement.body, name, depth + 1)
                if statement.fills:
                    lines += [f"{pad}without an iteration", *_lines([*statement.fills], name, depth + 1)]
            case While():
                lines.append(f"{pad}while{_buffers_text('carrying', statement.carried)}")
                lines += _lines(statement.before, name, depth + 1)
                lines.append(f"{pad}do{_buffers_text('with', statement.passed)}")
                lines += _lines(statement.body, name, depth + 1)
            case If():
                lines.append(f"{pad}if {name(statement.op.operand)}{_buffers_text('giving', statement.results)}")
                lines += _lines(statement.then, name, depth + 1)
                if statement.otherwise:
                    lines.append(f"{pad}else")
                    lines += _lines(statement.otherwise, name, depth + 1)
    return lines


def _operand_text(operand: Operand, name: Naming) -> str:
    if isinstance(operand, OperandBuffer):
        return operand.name
    return f"{name(operand.value)} {'in place' if isinstance(operand, InPlace) else 'as it is needed'}"


def _bound_text(bound: Bound, name: Naming) -> str:
    terms = "".join(
        f" {'-' if factor < 0 else '+'} {f'{abs(factor)} ' * (abs(factor) != 1)}{name(value)}" for value, factor in bound.terms
    )
    return f"{terms} <= {bound.limit}"


def _scalar_text(op: Operation, name: Naming) -> str:
    results = f"{', '.join(map(name, op.results))} <- " if op.results else ""
    known = definition(op.name).attribute_defs
    said = [str(value) for key, value in op.attributes.items() if key not in known or value != known[key].default]
    return f"{results}{op.name} {', '.join([*said, *map(name, op.operands)])}".rstrip()


def _buffers_text(what: str, buffers: Sequence[Buffer | None]) -> str:
    names = ", ".join(buffer.name for buffer in buffers if buffer is not None)
    return f" {what} {names}" if names else ""
