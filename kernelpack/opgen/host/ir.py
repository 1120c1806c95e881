"""The host IR: a host function as typed statements over a table of operations, before it is printed or sliced.

Every variable is assigned in one place, or declared once and assigned at the end of each branch or loop that decides it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelpack.errors import SourceLocation
from kernelpack.kernel.jit import JITFunction, KernelParam
from kernelpack.opgen.stated.config import Fastest
from kernelpack.opgen.stated.schema import Schema


@dataclass(frozen=True)
class HostType:
    """What a host value is. `optional` values may be None."""

    name: str
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.name} or None" if self.optional else self.name

    @property
    def required(self) -> HostType:
        return HostType(self.name)


INT, FLOAT, BOOL = HostType("int"), HostType("float"), HostType("bool")
TENSOR, DTYPE, DEVICE = HostType("Tensor"), HostType("dtype"), HostType("device")
INTS, FLOATS, ROWS, TEXT, NONE = (HostType(name) for name in ("ints", "floats", "rows", "str", "None"))


@dataclass(frozen=True)
class Variable:
    """A variable of the translated function; names are unique in it."""

    name: str
    type: HostType

    def __hash__(self) -> int:  # that of the fields is slow, and what is known of a call is by variable
        return hash(self.name)


@dataclass(frozen=True)
class Const:
    """A value known when building: a number, a bool, None, a str or a DType."""

    value: Any
    type: HostType


@dataclass(frozen=True)
class Ref:
    variable: Variable

    @property
    def type(self) -> HostType:
        return self.variable.type


@dataclass(frozen=True)
class Apply:
    """An operation of `host_ops.OPS` on operands."""

    op: str
    operands: tuple[Expr, ...]
    type: HostType

    @property
    def operand(self) -> Expr:
        """The only operand."""
        (only,) = self.operands
        return only


Expr = Const | Ref | Apply
NOTHING = Const(None, NONE)


@dataclass(frozen=True)
class Let:
    """Defines a variable."""

    variable: Variable
    value: Expr


@dataclass(frozen=True)
class Declare:
    """Declares a variable that branches or loops assign."""

    variable: Variable
    initial: Expr | None = None


@dataclass(frozen=True)
class Assign:
    variable: Variable
    value: Expr


@dataclass(frozen=True)
class Check:
    """An error unless `condition`; the message is text and values in turn."""

    condition: Expr
    message: tuple[str | Expr, ...]


@dataclass(frozen=True)
class Allocate:
    """Defines a tensor. `strides` None means contiguous. `output` is the number of the op result it becomes, if any."""

    variable: Variable
    shape: Expr
    strides: Expr | None
    dtype: Expr
    device: Expr
    location: SourceLocation
    output: int | None = None


@dataclass(frozen=True)
class If:
    condition: Expr
    then: tuple[Statement, ...]
    orelse: tuple[Statement, ...] = ()


@dataclass(frozen=True)
class For:
    """`for variable in range(start, stop, step)`."""

    variable: Variable
    start: Expr
    stop: Expr
    step: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Parts:
    """What a launch passes for a parameter that is a tuple: the class of a named one, and for each entry the parameter that it becomes, or
    the parts of that."""

    of: type | None
    entries: tuple[str | Parts, ...]


@dataclass(frozen=True)
class Launch:
    """`kernel[grid](arguments)`. `parameters` are those of the kernel; where a launch passes a tuple, one for each of its parts
    (`strides_row`), which `parts` says by the kernel's own parameter. `arguments` are by their names, run-time and constexpr alike, and
    by the names of axes that only choose a config; a grid may hold `meta` operations. `options` are compile options given at the launch,
    such as num_warps; `fastest` are the configs of an autotuned kernel."""

    kernel: JITFunction
    grid: tuple[Expr, ...]
    parameters: tuple[KernelParam, ...]
    parts: Mapping[str, Parts]
    arguments: Mapping[str, Expr]
    options: Mapping[str, Any]
    location: SourceLocation
    index: int = 0
    fastest: Fastest | None = None

    @property
    def kernel_name(self) -> str:
        return self.kernel.__name__

    @functools.cached_property
    def meta_names(self) -> tuple[str, ...]:
        """The constexprs that the grid asks of the chosen variant, in order of use."""
        found: dict[str, None] = {}
        for dimension in self.grid:
            for expr in walk_expr(dimension):
                if isinstance(expr, Apply) and expr.op == "meta":
                    assert isinstance(expr.operand, Const)
                    found[expr.operand.value] = None
        return tuple(found)


@dataclass(frozen=True)
class Return:
    values: tuple[Expr, ...]
    location: SourceLocation


Statement = Let | Declare | Assign | Check | Allocate | If | For | Launch | Return


@dataclass(frozen=True)
class HostFunction:
    """A translated host function. `arguments` are the op's arguments in order of the schema."""

    name: str
    schema: Schema
    arguments: tuple[Variable, ...]
    body: tuple[Statement, ...]
    location: SourceLocation
    launches: tuple[Launch, ...] = field(default=())


def walk_expr(expr: Expr) -> Iterator[Expr]:
    """Yields an expression and everything in it."""
    yield expr
    if isinstance(expr, Apply):
        for operand in expr.operands:
            yield from walk_expr(operand)


def walk_statements(statements: tuple[Statement, ...]) -> Iterator[Statement]:
    """Yields statements and those nested in them, in order."""
    for statement in statements:
        yield statement
        if isinstance(statement, If):
            yield from walk_statements(statement.then)
            yield from walk_statements(statement.orelse)
        elif isinstance(statement, For):
            yield from walk_statements(statement.body)


def expressions_of(statement: Statement) -> tuple[Expr, ...]:
    """Returns the expressions a statement evaluates itself, without nested statements'."""
    match statement:
        case Let(_, value) | Assign(_, value):
            return (value,)
        case Declare(_, initial):
            return () if initial is None else (initial,)
        case Check(condition, message):
            return (condition, *(part for part in message if not isinstance(part, str)))
        case Allocate():
            return (
                statement.shape,
                *([] if statement.strides is None else [statement.strides]),
                statement.dtype,
                statement.device,
            )
        case If(condition, _, _):
            return (condition,)
        case For(_, start, stop, step, _):
            return (start, stop, step)
        case Launch():
            return (*statement.grid, *statement.arguments.values())
        case Return(values):
            return values
    raise TypeError(statement)


def references(expr: Expr) -> set[Variable]:
    """Returns the variables an expression reads."""
    return {part.variable for part in walk_expr(expr) if isinstance(part, Ref)}


def returns_always(statements: tuple[Statement, ...]) -> bool:
    """Whether control never reaches the end of the statements."""
    for statement in statements:
        if isinstance(statement, Return):
            return True
        if isinstance(statement, Check) and statement.condition == Const(False, BOOL):
            return True
        if isinstance(statement, If) and returns_always(statement.then) and returns_always(statement.orelse):
            return True
    return False
