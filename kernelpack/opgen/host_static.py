"""Follows a host function for one combination of dtypes: which launches are reached, and what their arguments then are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelpack.opgen.dtypes import DType
from kernelpack.opgen.host_ir import (
    NOTHING,
    TENSOR,
    Allocate,
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
)
from kernelpack.opgen.host_ops import OPS


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
class ReachedLaunch:
    """A launch with what is known of its arguments: a number, bool or DType, a TensorFact, None, or UNKNOWN."""

    launch: Launch
    arguments: Mapping[str, Any]


@dataclass
class _State:
    values: dict[Variable, Any] = field(default_factory=dict)


def reached_launches(
    host: HostFunction,
    dtypes: Mapping[str, DType | None],
    is_cuda: bool | None = None,
    given: Mapping[Variable, Any] | None = None,
) -> list[ReachedLaunch]:
    """Returns the launches that a call whose tensors have these dtypes can reach, in order. `given` are values of arguments."""
    state = _State()
    for argument, variable in zip(host.schema.arguments, host.arguments, strict=True):
        dtype = dtypes.get(argument.name)
        state.values[variable] = TensorFact(dtype, is_cuda if dtype else None) if argument.is_tensor else UNKNOWN
    state.values |= given or {}
    reached: list[ReachedLaunch] = []
    _run(host.body, state, reached)
    return reached


def _run(statements: tuple[Statement, ...], state: _State, reached: list[ReachedLaunch]) -> bool:
    """Follows statements; returns False if control cannot leave them at their end."""
    for statement in statements:
        match statement:
            case Let(variable, value) | Assign(variable, value):
                state.values[variable] = evaluate(value, state.values)
            case Declare(variable, initial):
                state.values[variable] = UNKNOWN if initial is None else evaluate(initial, state.values)
            case Allocate(variable, _, _, dtype):
                known = evaluate(dtype, state.values)
                state.values[variable] = UNKNOWN if known is UNKNOWN else TensorFact(known)
            case Launch():
                known_arguments = {name: evaluate(value, state.values) for name, value in statement.arguments.items()}
                reached.append(ReachedLaunch(statement, known_arguments))
            case Check(condition):
                if evaluate(condition, state.values) is False:
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
    condition = evaluate(statement.condition, state.values)
    if condition is not UNKNOWN:
        return _run(statement.then if condition else statement.orelse, state, reached)
    then, orelse = _State(dict(state.values)), _State(dict(state.values))
    then_ends = _run(statement.then, then, reached)
    else_ends = _run(statement.orelse, orelse, reached)
    if then_ends and else_ends:
        merged = then.values.keys() & orelse.values.keys()
        state.values = {
            variable: then.values[variable] if _same(then.values[variable], orelse.values[variable]) else UNKNOWN
            for variable in merged
        }
    else:
        state.values = then.values if then_ends else orelse.values
    return then_ends or else_ends


def _same(a: Any, b: Any) -> bool:
    return a is b or (a is not UNKNOWN and b is not UNKNOWN and type(a) is type(b) and a == b)


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
        condition = evaluate(expr.operands[0], values)
        if condition is not UNKNOWN:
            return evaluate(expr.operands[1] if condition else expr.operands[2], values)
        then, orelse = (evaluate(operand, values) for operand in expr.operands[1:])
        return then if _same(then, orelse) else UNKNOWN
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
    return expr.type.required == TENSOR or expr == NOTHING
