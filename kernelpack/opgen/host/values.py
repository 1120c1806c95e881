"""What a host function's Python stands for while it is translated: values, the names in scope, and their conversions."""

from __future__ import annotations

import ast
import enum
from dataclasses import dataclass
from typing import Any

from kernelpack.dtypes import dtype_of
from kernelpack.errors import HostFunctionError
from kernelpack.opgen.host.ir import (
    BOOL,
    DTYPE,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    NONE,
    NOTHING,
    TENSOR,
    TEXT,
    Apply,
    Check,
    Const,
    Expr,
    HostType,
    Let,
    Ref,
    Statement,
    Variable,
)
from kernelpack.opgen.host.ops import apply
from kernelpack.opgen.host.source import HostSource


@dataclass(frozen=True)
class Tuple:
    """A tuple whose length is known; `of` is the class of a named one."""

    items: tuple[Value, ...]
    of: type | None = None


@dataclass(frozen=True)
class Object:
    """A Python object that only its use can translate: a module, a kernel, a function, a class."""

    value: Any


@dataclass(frozen=True)
class Method:
    """A method of a tensor or device, not yet called."""

    owner: Expr
    name: str


@dataclass(frozen=True)
class Grid:
    """A `lambda meta: (...)` with the names it sees."""

    tree: ast.Lambda
    names: dict[str, Value]


@dataclass(frozen=True)
class Meta:
    """The constexprs of the variant chosen for a launch: the parameter of a grid lambda."""


Value = Const | Ref | Apply | Tuple | Object | Method | Grid | Meta


class Scope:
    """Where a translation is: `names` is the current scope; the statements that values need go to `block`."""

    def __init__(self, source: HostSource, fresh: dict[str, int]) -> None:
        self.source = source
        self.names: dict[str, Value] = {}
        self.block: list[Statement] = []
        self.fresh = fresh

    def fail(self, node: ast.AST, message: str, cure: str | None = None) -> HostFunctionError:
        return self.source.fail(node, message, cure)

    def variable(self, name: str, kind: HostType) -> Variable:
        """Returns a new variable, with a number after the name if it is taken (`x`, `x_2`)."""
        count = self.fresh.get(name, 0) + 1
        self.fresh[name] = count
        candidate = name if count == 1 else f"{name}_{count}"
        return self.variable(name, kind) if count > 1 and candidate in self.fresh else Variable(candidate, kind)

    def let(self, name: str, value: Expr) -> Ref:
        """Defines a new variable with a value."""
        variable = self.variable(name, value.type)
        self.block.append(Let(variable, value))
        return Ref(variable)

    def constant(self, value: Any, node: ast.AST) -> Value:
        """Returns a Python object as a constant if it has a run-time form."""
        if value is None:
            return NOTHING
        if isinstance(value, enum.Enum) and isinstance(value, int):
            value = int(value)
        for python, kind in ((bool, BOOL), (int, INT), (float, FLOAT), (str, TEXT)):
            if type(value) is python:
                if isinstance(value, int) and not -(2**63) <= value < 2**63:
                    raise self.fail(node, f"{value} does not fit 64 bits")
                return Const(value, kind)
        dtype = dtype_of(value)
        if dtype is not None:
            return Const(dtype, DTYPE)
        if isinstance(value, (tuple, list)):
            return Tuple(tuple(self.constant(item, node) for item in value), type(value) if hasattr(value, "_fields") else None)
        return Object(value)

    def as_expr(self, value: Value, node: ast.AST, what: str = "this") -> Expr:
        if isinstance(value, (Const, Ref, Apply)):
            return value
        if isinstance(value, Tuple):
            return self.as_list(value, node)
        if isinstance(value, Object):
            raise self.fail(node, f"{what} is a Python {type(value.value).__name__}, not a number, tensor or shape")
        raise self.fail(node, f"{what} is not a value", "call it" if isinstance(value, Method) else None)

    def number(self, value: Value, node: ast.AST, kind: HostType = INT) -> Expr:
        """Returns a value as an int, float or bool; ints become floats, bools ints, where `kind` asks for it."""
        expr = self.as_expr(value, node)
        if expr.type.optional or expr.type == NONE:
            raise self.may_be_none(expr, node)
        if expr.type == kind:
            return expr
        if kind == FLOAT and expr.type in (INT, BOOL):
            return apply("to_float", expr)
        if kind == INT and expr.type == BOOL:
            return apply("to_int", expr)
        raise self.fail(node, f"expected {kind}, found {expr.type}")

    def may_be_none(self, expr: Expr, node: ast.AST) -> HostFunctionError:
        name = expr.variable.name if isinstance(expr, Ref) else "this value"
        return self.fail(node, f"{name} may be None here", f"handle it first: if {name} is None: ...")

    def tensor(self, value: Value, node: ast.AST, *, none_ok: bool = False) -> Expr:
        expr = self.as_expr(value, node)
        if expr.type == TENSOR or (none_ok and (expr.type.required == TENSOR or expr == NOTHING)):
            return expr
        if expr.type.required == TENSOR or expr == NOTHING:
            raise self.may_be_none(expr, node)
        raise self.fail(node, f"expected a Tensor, found {expr.type}")

    def as_list(self, value: Value, node: ast.AST) -> Expr:
        """Returns a shape: a tuple of ints, or a list that is one already."""
        if isinstance(value, Tuple):
            return apply("ints", *(self.number(item, node) for item in value.items), type=INTS)
        expr = self.as_expr(value, node)
        if expr.type != INTS:
            raise self.fail(node, f"expected a tuple of ints such as x.shape, found {expr.type}")
        return expr

    def items(self, value: Value, node: ast.AST, count: int) -> list[Value]:
        """Unpacks a value into `count` others; a run-time list gets a check of its length."""
        if isinstance(value, Tuple):
            if len(value.items) != count:
                raise self.fail(node, f"cannot unpack {len(value.items)} values into {count} names")
            return list(value.items)
        expr = self.as_expr(value, node)
        if isinstance(expr, Apply) and expr.op == "shape":
            (owner,) = expr.operands
            dim = apply("dim", owner)
            name = owner.variable.name if isinstance(owner, Ref) else "the tensor"
            plural = "" if count == 1 else "s"
            wanted = apply("eq", dim, Const(count, INT))
            self.block.append(Check(wanted, (f"{name} must have {count} dimension{plural}, it has shape ", expr)))
            return [apply("size", owner, Const(index, INT)) for index in range(count)]
        if expr.type in (INTS, FLOATS):
            held = self.let("values", expr) if isinstance(expr, Apply) else expr
            found = apply("len", held)
            self.block.append(Check(apply("eq", found, Const(count, INT)), (f"expected {count} values, got ", found)))
            element = INT if expr.type == INTS else FLOAT
            return [apply("at", held, Const(index, INT), type=element) for index in range(count)]
        raise self.fail(node, f"{expr.type} cannot be unpacked")

    def joined(self, a: HostType, b: HostType, node: ast.AST) -> HostType:
        """Returns the type of a value that is one or the other."""
        if a == b:
            return a
        if NONE in (a, b):
            other = (b if a == NONE else a).required
            if other in (TENSOR, INT, FLOAT, BOOL):
                return HostType(other.name, optional=True)
        if a.required == b.required:
            return HostType(a.name, optional=True)
        if {a, b} <= {INT, FLOAT}:
            return FLOAT
        raise self.fail(node, f"one branch gives {a}, the other {b}")

    def convert(self, value: Expr, kind: HostType) -> Expr:
        return apply("to_float", value) if kind == FLOAT and value.type == INT else value
