"""Finds which allocations of a host function become which results, so that `.out` can write them in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelpack.errors import HostFunctionError, SourceLocation
from kernelpack.opgen.host_ir import (
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
    output_of: dict[Variable, int] = {}
    returned_at: dict[int, SourceLocation] = {}

    def mark(value: Expr, index: int) -> bool:
        """Notes that a tensor becomes a result; returns whether that is new."""

        def fail(message: str, cure: str | None = None) -> HostFunctionError:
            return HostFunctionError(message, location=returned_at[index], cure=cure)

        if isinstance(value, Apply) and value.op == "select":
            then, orelse = (mark(operand, index) for operand in value.operands[1:])
            return then or orelse
        if not isinstance(value, Ref):
            raise fail("a result is a tensor that kp.empty, kp.empty_like or kp.empty_strided made")
        variable = value.variable
        if variable in arguments:
            raise fail(
                f"returns its argument {variable.name!r}: torch forbids results that alias arguments",
                "allocate the result with kp.empty_like, or declare the argument Tensor(a!) and return nothing",
            )
        if output_of.get(variable, index) != index:
            raise fail(f"returns {variable.name!r} twice: torch forbids results that alias each other", "allocate another")
        new = variable not in output_of
        output_of[variable] = index
        return new

    for statement in walk_statements(body):
        if isinstance(statement, Return):
            for index, value in enumerate(statement.values):
                returned_at[index] = statement.location
                if value.type == TENSOR:
                    mark(value, index)
    changed = True
    while changed:
        changed = False
        for statement in walk_statements(body):
            if isinstance(statement, (Let, Assign)) and statement.variable in output_of:
                changed |= mark(statement.value, output_of[statement.variable])
            elif isinstance(statement, Declare) and statement.variable in output_of and statement.initial is not None:
                changed |= mark(statement.initial, output_of[statement.variable])

    def rewrite(statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
        done: list[Statement] = []
        for statement in statements:
            if isinstance(statement, If):
                statement = replace(statement, then=rewrite(statement.then), orelse=rewrite(statement.orelse))
            elif isinstance(statement, Allocate):
                statement = replace(statement, output=output_of.get(statement.variable))
            done.append(statement)
        return tuple(done)

    return rewrite(body)
