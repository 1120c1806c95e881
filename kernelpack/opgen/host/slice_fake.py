"""Slices a host function to what the metadata of its results needs: the op's fake kernel.

Launches, scratch, and branches that only choose between launches go, so that nothing asks a symbolic size for its value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernelpack.opgen.host.ir import (
    Allocate,
    Apply,
    Assign,
    Check,
    Declare,
    Expr,
    For,
    HostFunction,
    If,
    Launch,
    Let,
    Ref,
    Statement,
    Variable,
    expressions_of,
    references,
    walk_expr,
    walk_statements,
)
from kernelpack.opgen.host.ops import OPS

_ASKS_FOR_VALUES = (
    "next_power_of_2",
    "exp",
    "log",
    "log2",
    "pow_float",
    "collapse_batches",
    "collapse_rows",
    "broadcast_strides",
    "strides_like",
    "select",
    "at",
)
"""Operations that need the value of a symbol, not the symbol."""


@dataclass
class Symbols:
    """Which variables hold sizes, strides or numbers of the call: symbols while exporting with dynamic shapes."""

    variables: set[Variable]

    @staticmethod
    def of(host: HostFunction) -> Symbols:
        schema = zip(host.schema.arguments, host.arguments, strict=True)
        symbols = Symbols({variable for argument, variable in schema if argument.type.text == "SymInt"})
        for _ in range(2):  # twice: a loop may carry a size backwards
            for statement in walk_statements(host.body):
                if (isinstance(statement, (Let, Assign)) and symbols.depends(statement.value)) or (
                    isinstance(statement, Declare) and statement.initial is not None and symbols.depends(statement.initial)
                ):
                    symbols.variables.add(statement.variable)
        return symbols

    def depends(self, expr: Expr) -> bool:
        """Whether an expression is a symbol, or computed from one."""
        return any(
            (isinstance(part, Ref) and part.variable in self.variables)
            or (isinstance(part, Apply) and OPS[part.op].size_dependent)
            for part in walk_expr(expr)
        )

    def asks_for_values(self, expr: Expr) -> bool:
        """Whether evaluating an expression would fix a symbol to its value."""
        return any(
            isinstance(part, Apply) and part.op in _ASKS_FOR_VALUES and any(self.depends(operand) for operand in part.operands)
            for part in walk_expr(expr)
        )


def slice_fake(host: HostFunction) -> tuple[Statement, ...]:
    """Returns the statements of the fake kernel. Checks stay where they can be checked, or recorded, symbolically."""
    symbols = Symbols.of(host)
    body = _drop_checks(host.body, symbols)
    needed: set[Variable] = set()
    while True:
        before = len(needed)
        sliced = _slice(body, needed)
        if len(needed) == before:
            return sliced


def _drop_checks(
    statements: tuple[Statement, ...], symbols: Symbols, *, symbolic_branch: bool = False
) -> tuple[Statement, ...]:
    """Removes checks that would fix a symbol: those of values, and those of branches that sizes choose but results do not need."""
    kept: list[Statement] = []
    for statement in statements:
        if isinstance(statement, Check) and (symbolic_branch or _fixes(statement.condition, symbols)):
            continue
        if isinstance(statement, If):
            inside = symbolic_branch or symbols.depends(statement.condition)
            statement = replace(
                statement,
                then=_drop_checks(statement.then, symbols, symbolic_branch=inside),
                orelse=_drop_checks(statement.orelse, symbols, symbolic_branch=inside),
            )
        kept.append(statement)
    return tuple(kept)


def _fixes(condition: Expr, symbols: Symbols) -> bool:
    return symbols.asks_for_values(condition)


def _slice(statements: tuple[Statement, ...], needed: set[Variable]) -> tuple[Statement, ...]:
    """Keeps what defines `needed` and grows it by what the kept statements read. Runs to a fixed point in slice_fake."""
    kept: list[Statement] = []
    for statement in reversed(statements):
        if isinstance(statement, If):
            then, orelse = _slice(statement.then, needed), _slice(statement.orelse, needed)
            if not then and not orelse:
                continue
            statement = replace(statement, then=then, orelse=orelse)
        elif isinstance(statement, For):
            body = _slice(statement.body, needed)
            if not body:
                continue
            statement = replace(statement, body=body)
        elif isinstance(statement, Launch) or (
            isinstance(statement, (Let, Declare, Assign, Allocate)) and statement.variable not in needed
        ):
            continue
        for expr in expressions_of(statement):
            needed |= references(expr)
        kept.append(statement)
    return tuple(reversed(kept))
