"""Follows a host function for one combination of dtypes: which launches are reached, and what their arguments then are."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelpack.dtypes import DType
from kernelpack.opgen.host.ir import (
    NOTHING,
    TENSOR,
    Allocate,
    Apply,
    Assign,
    Check,
    Const,
    Declare,
    Expr,
    For,
    HostFunction,
    If,
    Launch,
    Let,
    Ref,
    Return,
    Statement,
    Variable,
    references,
)
from kernelpack.opgen.host.ops import OPS


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Any = _Unknown()
"""A value that only the call knows."""


@dataclass(frozen=True)
class TensorFact:
    """A tensor whose dtype is known; `dtype` None: the argument is absent. `is_cuda` None: only the call knows."""

    dtype: DType | None
    is_cuda: bool | None = None


@dataclass(frozen=True)
class OneOf:
    """A value that is one of several; which one, a branch says that only the call decides."""

    values: frozenset[Any]


@dataclass(frozen=True)
class ReachedLaunch:
    """A launch, and what is known of each of its arguments: a number, bool, DType, TensorFact or None; UNKNOWN; or OneOf, where
    `reached_launches` was asked for alternatives."""

    launch: Launch
    arguments: Mapping[str, Any]


@dataclass
class _State:
    """What is known at a place of the host function. `given` are values that variables are assumed to have; None: no assumptions, and no
    alternatives either."""

    values: dict[Variable, Any] = field(default_factory=dict)
    given: Mapping[Variable, Any] | None = None

    def evaluate(self, expr: Expr) -> Any:
        """Returns an expression's value, with its alternatives where they are asked for."""
        return evaluate(expr, self.values) if self.given is None else _alternatives(expr, self.values)

    def assign(self, variable: Variable, value: Any) -> bool:
        """Notes a variable's value; returns False where it cannot be the given one."""
        if self.given is None or variable not in self.given:
            self.values[variable] = value
            return True
        self.values[variable] = self.given[variable]
        return value is UNKNOWN or self.given[variable] in (value.values if isinstance(value, OneOf) else (value,))


def reached_launches(
    host: HostFunction,
    dtypes: Mapping[str, DType | None],
    is_cuda: bool | None = None,
    given: Mapping[Variable, Any] | None = None,
) -> list[ReachedLaunch]:
    """Returns the launches that a call whose tensors have these dtypes can reach, in order.

    With `given`, of which the values of arguments and of variables that are assigned once are taken, the values of others are
    followed through branches that only the call decides.
    """
    state = _State(given=given)
    for argument, variable in zip(host.schema.arguments, host.arguments, strict=True):
        dtype = dtypes.get(argument.name)
        state.values[variable] = TensorFact(dtype, is_cuda if dtype else None) if argument.is_tensor else UNKNOWN
    state.values |= {variable: value for variable, value in (given or {}).items() if variable in state.values}
    reached: list[ReachedLaunch] = []
    _run(host.body, state, reached)
    return reached


def _run(statements: tuple[Statement, ...], state: _State, reached: list[ReachedLaunch]) -> bool:
    """Follows statements; returns False if control cannot leave them at their end."""
    for statement in statements:
        match statement:
            case Let(variable, value):
                if not state.assign(variable, state.evaluate(value)):
                    return False
            case Assign(variable, value):
                state.values[variable] = state.evaluate(value)
            case Declare(variable, initial):
                state.values[variable] = UNKNOWN if initial is None else state.evaluate(initial)
            case Allocate(variable, _, _, dtype):
                known = evaluate(dtype, state.values)
                state.values[variable] = UNKNOWN if known is UNKNOWN else TensorFact(known)
            case Launch():
                known_arguments = {name: state.evaluate(value) for name, value in statement.arguments.items()}
                reached.append(ReachedLaunch(statement, known_arguments))
            case Check(condition):
                if state.evaluate(condition) is False:
                    return False
            case If():
                if not _branch(statement, state, reached):
                    return False
            case For(counter, _, _, _, body):
                assigned = {inner.variable for inner in body if isinstance(inner, Assign)}
                state.values |= dict.fromkeys([*assigned, counter], UNKNOWN)
                _run(body, state, reached)
                state.values |= dict.fromkeys(assigned, UNKNOWN)
            case Return():
                return False
    return True


def _branch(statement: If, state: _State, reached: list[ReachedLaunch]) -> bool:
    condition = state.evaluate(statement.condition)
    if condition is not UNKNOWN and not isinstance(condition, OneOf):
        return _run(statement.then if condition else statement.orelse, state, reached)
    then, orelse = _State(dict(state.values), state.given), _State(dict(state.values), state.given)
    then_ends = _run(statement.then, then, reached)
    else_ends = _run(statement.orelse, orelse, reached)
    if then_ends and else_ends:
        merged = then.values.keys() & orelse.values.keys()
        sides = {variable: (then.values[variable], orelse.values[variable]) for variable in merged}
        state.values = {
            variable: a if _same(a, b) else UNKNOWN if state.given is None else _either(a, b)
            for variable, (a, b) in sides.items()
        }
    else:
        state.values = then.values if then_ends else orelse.values
    return then_ends or else_ends


def _same(a: Any, b: Any) -> bool:
    return a is b or (a is not UNKNOWN and b is not UNKNOWN and type(a) is type(b) and a == b)


def _either(a: Any, b: Any) -> Any:
    """Returns what a value is that is one or the other."""
    if a is UNKNOWN or b is UNKNOWN:
        return UNKNOWN
    values = frozenset().union(*(side.values if isinstance(side, OneOf) else {side} for side in (a, b)))
    return OneOf(values) if len(values) > 1 else a


_MOST_ALTERNATIVES = 64


def _alternatives(expr: Expr, values: Mapping[Variable, Any]) -> Any:
    """Returns an expression's value, OneOf where it depends on values that are."""
    if not isinstance(expr, Apply):
        return evaluate(expr, values)
    if expr.op == "select":
        asked, then, orelse = expr.operands
        condition = _alternatives(asked, values)
        if condition is UNKNOWN or isinstance(condition, OneOf):
            return _either(_alternatives(then, values), _alternatives(orelse, values))
        return _alternatives(then if condition else orelse, values)
    open_variables = [variable for variable in references(expr) if isinstance(values.get(variable), OneOf)]
    if not open_variables:
        return evaluate(expr, values)
    listed = [sorted(values[variable].values, key=repr) for variable in open_variables]
    if math.prod(map(len, listed)) > _MOST_ALTERNATIVES:
        return evaluate(expr, {**values, **dict.fromkeys(open_variables, UNKNOWN)})
    found = [evaluate(expr, {**values, **dict(zip(open_variables, each, strict=True))}) for each in itertools.product(*listed)]
    return functools.reduce(_either, found)


def evaluate(expr: Expr, values: Mapping[Variable, Any]) -> Any:
    """Returns an expression's value where the known values decide it, else UNKNOWN."""
    if isinstance(expr, Const):
        return TensorFact(None) if expr == NOTHING else expr.value
    if isinstance(expr, Ref):
        return values.get(expr.variable, UNKNOWN)
    if expr.op in ("and", "or"):
        short = expr.op == "or"
        known = [evaluate(operand, values) for operand in expr.operands]
        if short in [value for value in known if value is not UNKNOWN]:
            return short
        return UNKNOWN if UNKNOWN in known else not short
    if expr.op == "select":
        asked, then, orelse = expr.operands
        condition = evaluate(asked, values)
        if condition is not UNKNOWN:
            return evaluate(then if condition else orelse, values)
        one, other = evaluate(then, values), evaluate(orelse, values)
        return one if _same(one, other) else UNKNOWN
    operands = [evaluate(operand, values) for operand in expr.operands]
    first = operands[0] if operands else UNKNOWN
    if expr.op == "is_none":
        return first.dtype is None if isinstance(first, TensorFact) else UNKNOWN
    if expr.op == "value":
        return first
    if expr.op == "is_cuda":
        return first.is_cuda if isinstance(first, TensorFact) and first.is_cuda is not None else UNKNOWN
    if expr.op == "dtype":
        return first.dtype if isinstance(first, TensorFact) and first.dtype is not None else UNKNOWN
    if expr.op == "element_size":
        return first.dtype.bytes if isinstance(first, TensorFact) and first.dtype is not None else UNKNOWN
    compute = OPS[expr.op].evaluate
    if compute is None or any(value is UNKNOWN or isinstance(value, TensorFact) for value in operands):
        return UNKNOWN
    try:
        return compute(*operands)
    except (ArithmeticError, ValueError):  # the call will raise it
        return UNKNOWN


def is_tensor_like(expr: Expr) -> bool:
    """Whether a kernel argument is a tensor, maybe absent, or None."""
    return expr.type.name == TENSOR.name or expr == NOTHING
