"""The tile-loop level: what a kernel does on a CPU as a list of loop nests over tiles, matrix products and scratch buffers.

A tile lives in a *buffer* only where it must (loop-carried, operand of a product, used by several nests); everything else is
recomputed element by element inside the nest that consumes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kernelpack.backends.cpu.plan.buffers import Buffer, Operand, Storage, name_of
from kernelpack.backends.cpu.plan.sinks import Root
from kernelpack.ir import views
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import operand


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
        return self.out.inner_axis

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

    def __str__(self) -> str:
        parameters = ", ".join(f"{name_of(a)}: {a.type}" for a in self.entry.body.arguments)
        lines = [f"kernel {self.entry.attributes['sym_name']}({parameters})"]
        lines += _lines(self.statements, 1)
        return "\n".join(lines) + "\n"


def walk(statements: list[Statement]) -> Iterator[Statement]:
    """Yields all statements, nested ones too, in program order."""
    for statement in statements:
        yield statement
        if isinstance(statement, (For, If, While)):
            for part in statement.parts():
                yield from walk(part)


def _lines(statements: list[Statement], depth: int) -> list[str]:
    pad, lines = "  " * depth, []
    for statement in statements:
        match statement:
            case Nest():
                shape = "x".join(map(str, statement.shape))
                lines.append(f"{pad}nest {shape}, lanes {statement.lane_axis}")
                lines += [f"{pad}  {root}" for root in statement.roots]
            case Dot():
                c = name_of(operand(statement.op, "c"))
                lines.append(f"{pad}{statement.out} <- {statement.a.name} * {statement.b.name} + {c}")
            case Scalar():
                lines.append(f"{pad}{statement.op.name} {', '.join(map(name_of, statement.op.results))}".rstrip())
            case For():
                carried = ", ".join(str(buffer) for buffer in statement.carried if buffer)
                lines.append(f"{pad}for {name_of(views.For.of(statement.op).induction)} carrying ({carried})")
                lines += _lines(statement.body, depth + 1)
            case While():
                lines.append(f"{pad}while")
                lines += _lines(statement.before, depth + 1)
                lines.append(f"{pad}do")
                lines += _lines(statement.body, depth + 1)
            case If():
                lines.append(f"{pad}if {name_of(statement.op.operand)}")
                lines += _lines(statement.then, depth + 1)
                if statement.otherwise:
                    lines.append(f"{pad}else")
                    lines += _lines(statement.otherwise, depth + 1)
    return lines
