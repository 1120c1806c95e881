"""Which kernel parameters a specialised variant may assume something of, found by where a launch's arguments come from."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from kernelpack.facts import DIVISIBLE_BY, EQUAL_TO, REACHES, ArgumentProperty, Fact
from kernelpack.kernel.signatures import ttir_type
from kernelpack.opgen.host.ir import (
    TENSOR,
    Allocate,
    Apply,
    Assign,
    Check,
    Const,
    Declare,
    Expr,
    HostFunction,
    Launch,
    Let,
    Ref,
    Variable,
    walk_statements,
)
from kernelpack.opgen.stated.config import Assumptions


class Provenance:
    """Where the values of a host function come from."""

    def __init__(self, host: HostFunction) -> None:
        self.definitions: dict[Variable, Expr] = {}
        self.assigned: dict[Variable, list[Expr]] = defaultdict(list)
        self.allocations: set[Variable] = set()
        self.ranks: dict[Variable, int] = {}
        self.arguments = {
            variable: argument.name for argument, variable in zip(host.schema.arguments, host.arguments, strict=True)
        }
        for statement in walk_statements(host.body):
            if isinstance(statement, Let):
                self.definitions[statement.variable] = statement.value
            elif isinstance(statement, Assign):
                self.assigned[statement.variable].append(statement.value)
            elif isinstance(statement, Declare) and statement.initial is not None:
                self.assigned[statement.variable].append(statement.initial)
            elif isinstance(statement, Allocate):
                self.allocations.add(statement.variable)
                if isinstance(statement.shape, Apply) and statement.shape.op == "ints":
                    self.ranks[statement.variable] = len(statement.shape.operands)
            elif isinstance(statement, Check):
                self.note_rank(statement.condition)

    def note_rank(self, condition: Expr) -> None:
        """`x.dim() == 4` holds after a check of it."""
        match condition:
            case Apply("eq", (Apply("dim", (tensor,)), Const(rank))):
                variable = self.tensor(tensor)
                if variable is not None:
                    self.ranks[variable] = rank

    def definition(self, expr: Expr) -> Expr:
        """Returns what a variable was defined as, and other expressions themselves."""
        while isinstance(expr, Ref) and expr.variable in self.definitions:
            expr = self.definitions[expr.variable]
        return expr

    def tensor(self, expr: Expr) -> Variable | None:
        """Returns the argument or allocation that an expression is."""
        expr = self.definition(expr)
        if isinstance(expr, Apply) and expr.op == "value":
            return self.tensor(expr.operand)
        if isinstance(expr, Ref) and expr.type.required == TENSOR:
            known = expr.variable in self.arguments or expr.variable in self.allocations
            return expr.variable if known else None
        return None

    def possible(self, expr: Expr, seen: tuple[Variable, ...] = ()) -> set[str]:
        """Returns the names of the op's arguments that a tensor may be."""
        match self.definition(expr):
            case Apply("value" | "select" as op, operands):
                return {name for operand in operands[op == "select" :] for name in self.possible(operand, seen)}
            case Ref(variable) if variable in self.arguments:
                return {self.arguments[variable]}
            case Ref(variable) if variable not in seen:
                return {name for value in self.assigned[variable] for name in self.possible(value, (*seen, variable))}
        return set()

    def named(self, variable: Variable | None, tensors: tuple[str, ...] | None) -> bool:
        """Whether a specialization that names `tensors` covers a tensor. It always covers what the op allocates."""
        if variable is None:
            return False
        return tensors is None or variable in self.allocations or self.arguments.get(variable) in tensors

    def covered(self, expr: Expr, tensors: tuple[str, ...] | None) -> bool:
        """Whether a specialization that names `tensors` covers every tensor that an expression may be."""
        match self.definition(expr):
            case Apply("select", (_, then, otherwise)):
                return self.covered(then, tensors) and self.covered(otherwise, tensors)
        return self.named(self.tensor(expr), tensors)

    def inner_of(self, expr: Expr) -> Variable | None:
        """Returns the tensor whose last size, or whose stride other than the last, an integer is."""
        expr = self.definition(expr)
        match expr:
            case Apply("numel", (tensor,)):
                return self.tensor(tensor)
            case Apply("size" | "stride" as op, (tensor, Const(index))):
                variable = self.tensor(tensor)
                rank = self.ranks.get(variable) if variable is not None else None
                last = index == -1 or (rank is not None and index == rank - 1)
                return variable if last == (op == "size") else None
            case Apply("select", (_, value, Const(0))) | Apply("select", (_, Const(0), value)):
                return self.inner_of(value)  # a dimension that may be absent: its stride is 0, which everything divides
            case Apply("rows_stride", (rows, Const(number), _)):
                collapsed = self.definition(rows)
                assert isinstance(collapsed, Apply)
                _, *tensors = collapsed.operands
                return self.tensor(tensors[number])
            case Apply("at", (strides, Const(index))):
                spread = self.definition(strides)
                match spread:
                    case Apply("broadcast_strides", (tensor, Apply("ints", shape))) if index != len(shape) - 1:
                        return self.tensor(tensor)
        return None


def assumptions(
    launch: Launch,
    signature: Mapping[str, str],
    specialization: Assumptions,
    provenance: Provenance,
    properties: Sequence[ArgumentProperty],
) -> tuple[tuple[Fact, ...], tuple[Fact, ...]]:
    """Returns the facts a variant asks its backend to assume, and those that make a parameter a constant.

    `signature` holds the run-time parameters' types (`*fp32`, `i32`). What a specialization covers is assumed to be as divisible
    as it says, to end where it says, and to have every other property that the backend knows; a property that makes constants
    is assumed of what it says is 1.
    """
    facts: list[Fact] = []
    constants: list[Fact] = []
    for parameter in launch.parameters:
        name = parameter.name
        if name not in signature or parameter.do_not_specialize:
            continue
        value, kind = launch.arguments[name], ttir_type(signature[name])
        if signature[name].startswith("*"):
            limit = specialization.pointer if provenance.covered(value, specialization.tensors) else 0
        else:
            asked = name in specialization.divisible
            limit = specialization.inner if asked or provenance.named(provenance.inner_of(value), specialization.tensors) else 0
        known = [prop for prop in properties if prop.applies(kind)]
        one = [Fact(name, prop.name, prop.value) for prop in known if prop.test is EQUAL_TO and prop.holds(1)]
        if one and name in specialization.ones:
            constants.append(one[0])
            continue
        for prop in known if limit else ():
            assumed = prop.value
            if prop.test is DIVISIBLE_BY:  # a smaller divisor is worth knowing, too
                assumed = math.gcd(limit, prop.value)
                holds = assumed > 1 and not parameter.do_not_specialize_on_alignment
            elif prop.test is REACHES:
                holds = specialization.reach is not None and prop.test.implies(specialization.reach, prop.value)
            else:
                holds = prop.test is not EQUAL_TO
            if holds:
                facts.append(Fact(name, prop.name, assumed))
    return tuple(sorted(facts)), tuple(sorted(constants))
