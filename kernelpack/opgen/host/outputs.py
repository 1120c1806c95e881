"""Finds which allocations of a host function become which results, so that `.out` can write them in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernelpack.errors import HostFunctionError, SourceLocation
from kernelpack.opgen.host.ir import (
    TENSOR,
    Allocate,
    Apply,
    Assign,
    Declare,
    Expr,
    If,
    Let,
    Ref,
    Return,
    Statement,
    Variable,
    walk_statements,
)


def assign_outputs(body: tuple[Statement, ...], arguments: Sequence[Variable]) -> tuple[Statement, ...]:
    """Returns the body with `Allocate.output` set. Raises HostFunctionError for a result that is no fresh allocation."""
    outputs = _Outputs(arguments)
    for statement in walk_statements(body):
        if isinstance(statement, Return):
            outputs.returned(statement)
    while any(outputs.follow(statement) for statement in walk_statements(body)):
        pass
    return _with_outputs(body, outputs.of)


class _Outputs:
    """Which results variables become: `of`."""

    def __init__(self, arguments: Sequence[Variable]) -> None:
        self.arguments = arguments
        self.of: dict[Variable, int] = {}
        self.returned_at: dict[int, SourceLocation] = {}

    def returned(self, statement: Return) -> None:
        for index, value in enumerate(statement.values):
            self.returned_at[index] = statement.location
            if value.type == TENSOR:
                self.mark(value, index)

    def follow(self, statement: Statement) -> bool:
        """Marks what a variable that becomes a result was made from; returns whether that is new."""
        match statement:
            case Let(variable, value) | Assign(variable, value) | Declare(variable, value) if variable in self.of:
                return value is not None and self.mark(value, self.of[variable])
        return False

    def mark(self, value: Expr, index: int) -> bool:
        """Notes that a tensor becomes a result; returns whether that is new."""
        if isinstance(value, Apply) and value.op == "select":
            _, *sides = value.operands
            then, orelse = (self.mark(side, index) for side in sides)
            return then or orelse
        if not isinstance(value, Ref):
            raise self.fail(index, "a result is a tensor that kp.empty, kp.empty_like or kp.empty_strided made")
        variable = value.variable
        if variable in self.arguments:
            raise self.fail(
                index,
                f"returns its argument {variable.name!r}: torch forbids results that alias arguments",
                "allocate the result with kp.empty_like, or declare the argument Tensor(a!) and return nothing",
            )
        if self.of.get(variable, index) != index:
            raise self.fail(
                index, f"returns {variable.name!r} twice: torch forbids results that alias each other", "allocate another"
            )
        new = variable not in self.of
        self.of[variable] = index
        return new

    def fail(self, index: int, message: str, cure: str | None = None) -> HostFunctionError:
        return HostFunctionError(message, location=self.returned_at[index], cure=cure)


def _with_outputs(statements: tuple[Statement, ...], output_of: Mapping[Variable, int]) -> tuple[Statement, ...]:
    done: list[Statement] = []
    for statement in statements:
        if isinstance(statement, If):
            then, orelse = (_with_outputs(branch, output_of) for branch in (statement.then, statement.orelse))
            statement = replace(statement, then=then, orelse=orelse)
        elif isinstance(statement, Allocate):
            statement = replace(statement, output=output_of.get(statement.variable))
        done.append(statement)
    return tuple(done)
