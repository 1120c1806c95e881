"""Translates the expressions of a host function: what each Python form means, its type, and what it knows about None."""

from __future__ import annotations

import ast
import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelpack.errors import HostFunctionError
from kernelpack.opgen.dtypes import dtype_of
from kernelpack.opgen.host_ir import (
    BOOL,
    DEVICE,
    DTYPE,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    NONE,
    NOTHING,
    ROWS,
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
from kernelpack.opgen.host_ops import apply
from kernelpack.opgen.host_source import HostSource


@dataclass(frozen=True)
class Tuple:
    """A tuple whose length is known."""

    items: tuple[Value, ...]


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

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.BitAnd: "bit_and",
    ast.BitOr: "bit_or",
    ast.BitXor: "bit_xor",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}
_MATH = {math.sqrt: "sqrt", math.exp: "exp", math.log: "log", math.log2: "log2", math.floor: "floor", math.ceil: "ceil"}
_PROPERTIES = {"shape": "shape", "dtype": "dtype", "device": "device", "ndim": "dim", "is_cuda": "is_cuda"}
_METHODS = ("size", "stride", "numel", "dim", "is_contiguous", "element_size")


class Expressions:
    """Turns syntax into typed values. `names` is the current scope; statements it needs go to `block`."""

    def __init__(self, source: HostSource, fresh: dict[str, int]) -> None:
        self.source = source
        self.names: dict[str, Value] = {}
        self.block: list[Statement] = []
        self.fresh = fresh

    def fail(self, node: ast.AST, message: str, cure: str | None = None) -> HostFunctionError:
        return self.source.fail(node, message, cure)

    def variable(self, name: str, kind: HostType) -> Variable:
        """Returns a new variable, with a number behind the name if it is taken (`x`, `x_2`)."""
        count = self.fresh.get(name, 0) + 1
        self.fresh[name] = count
        candidate = name if count == 1 else f"{name}_{count}"
        return self.variable(name, kind) if count > 1 and candidate in self.fresh else Variable(candidate, kind)

    def let(self, name: str, value: Expr) -> Ref:
        """Defines a new variable with a value."""
        variable = self.variable(name, value.type)
        self.block.append(Let(variable, value))
        return Ref(variable)

    # -- entry points -------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Value:
        method = getattr(self, f"visit_{type(node).__name__}", None)
        if method is None:
            raise self.fail(
                node,
                f"{type(node).__name__} has no translation in a host function",
                "host functions check, allocate and launch; compute with numbers, conditions and shapes only",
            )
        try:
            result: Value = method(node)
        except (ArithmeticError, ValueError) as error:
            raise self.fail(node, f"{error} ({type(error).__name__})") from None
        return result

    def expr(self, node: ast.expr, what: str = "this") -> Expr:
        """Returns a value that exists at run time."""
        return self.as_expr(self.value(node), node, what)

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

    def condition(self, node: ast.expr) -> Expr:
        """Returns a truth value, with Python's meaning of numbers as conditions."""
        value = self.expr(node)
        if value.type == BOOL:
            return value
        if value.type in (INT, FLOAT):
            return apply("to_bool", value)
        if value.type.optional or value.type in (TENSOR, NONE):
            raise self.fail(node, f"the truth of {value.type} is not defined", "write `is not None`, or compare a number")
        raise self.fail(node, f"{value.type} is not a condition")

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

    # -- names and constants ------------------------------------------------------------------------------------------

    def visit_Constant(self, node: ast.Constant) -> Value:
        return self.constant(node.value, node)

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
            return Tuple(tuple(self.constant(item, node) for item in value))
        return Object(value)

    def visit_Name(self, node: ast.Name) -> Value:
        if node.id in self.names:
            value = self.names[node.id]
            if isinstance(value, Object) and isinstance(value.value, HostFunctionError):
                raise self.fail(node, value.value.message, value.value.cure)
            return value
        if node.id in self.source.names:
            return self.constant(self.source.names[node.id], node)
        raise self.fail(node, f"name {node.id!r} is not defined")

    def visit_Tuple(self, node: ast.Tuple | ast.List) -> Value:
        done: Value = Tuple(())
        for element in node.elts:
            if isinstance(element, ast.Starred):
                done = self.join(done, self.value(element.value), element)
            else:
                done = self.join(done, Tuple((self.value(element),)), element)
        return done

    visit_List = visit_Tuple

    def join(self, first: Value, second: Value, node: ast.AST) -> Value:
        """Returns two tuples behind each other."""
        if isinstance(first, Tuple) and isinstance(second, Tuple):
            return Tuple(first.items + second.items)
        if isinstance(first, Tuple) and not first.items:
            return self.as_list(second, node)
        return apply("concat", self.as_list(first, node), self.as_list(second, node))

    def visit_Lambda(self, node: ast.Lambda) -> Value:
        if len(node.args.args) != 1 or node.args.vararg or node.args.kwarg or node.args.kwonlyargs:
            raise self.fail(node, "a lambda can only be a grid", "write lambda meta: (...)")
        return Grid(node, dict(self.names))

    def visit_Attribute(self, node: ast.Attribute) -> Value:
        owner = self.value(node.value)
        if isinstance(owner, Object):
            try:
                return self.constant(getattr(owner.value, node.attr), node)
            except AttributeError:
                raise self.fail(node, f"{owner.value!r} has no attribute {node.attr!r}") from None
        if isinstance(owner, Const) and owner.type == DTYPE and node.attr == "itemsize":
            return Const(owner.value.bytes, INT)
        expr = self.as_expr(owner, node)
        if expr.type == DEVICE and node.attr in ("type", "index"):
            return Method(expr, node.attr)
        tensor = self.tensor(expr, node)
        if node.attr in _PROPERTIES:
            return apply(_PROPERTIES[node.attr], tensor)
        if node.attr in _METHODS:
            return Method(tensor, node.attr)
        raise self.fail(
            node,
            f"Tensor.{node.attr} has no translation",
            f"host functions can use {', '.join(sorted({*_PROPERTIES, *_METHODS}))}",
        )

    def visit_Subscript(self, node: ast.Subscript) -> Value:
        owner = self.value(node.value)
        if isinstance(owner, Meta):
            key = self.value(node.slice)
            if not (isinstance(key, Const) and key.type == TEXT):
                raise self.fail(node, "meta is indexed with the name of a constexpr", 'write meta["BLOCK_M"]')
            return Apply("meta", (key,), INT)
        if isinstance(node.slice, ast.Slice):
            return self.slice(owner, node.slice, node)
        index = self.number(self.value(node.slice), node.slice)
        if isinstance(owner, Tuple):
            if not isinstance(index, Const):
                raise self.fail(node, "a tuple is indexed with a number that is known when building")
            position = int(index.value)
            if not -len(owner.items) <= position < len(owner.items):
                raise self.fail(node, f"index {position} is out of range for a tuple of {len(owner.items)}")
            return owner.items[position]
        expr = self.as_expr(owner, node)
        if isinstance(expr, Apply) and expr.op in ("shape", "strides"):
            return apply("size" if expr.op == "shape" else "stride", expr.operands[0], index)
        if expr.type in (INTS, FLOATS):
            return apply("at", expr, index, type=INT if expr.type == INTS else FLOAT)
        raise self.fail(node, f"{expr.type} cannot be indexed")

    def slice(self, owner: Value, bounds: ast.Slice, node: ast.AST) -> Value:
        if bounds.step is not None:
            raise self.fail(node, "slices take no step")
        start = self.number(self.value(bounds.lower), node) if bounds.lower else Const(0, INT)
        stop = self.number(self.value(bounds.upper), node) if bounds.upper else Const(2**62, INT)
        if isinstance(owner, Tuple) and isinstance(start, Const) and isinstance(stop, Const):
            return Tuple(owner.items[start.value : stop.value])
        return apply("slice", self.as_list(owner, node), start, stop)

    # -- arithmetic and conditions ------------------------------------------------------------------------------------

    def visit_BinOp(self, node: ast.BinOp) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        lists = [x for x in (left, right) if isinstance(x, Tuple) or (isinstance(x, Apply) and x.type == INTS)]
        if isinstance(node.op, ast.Add) and len(lists) == 2:
            return self.join(left, right, node)
        return self.binary(type(node.op), left, right, node)

    def binary(self, operator: type[ast.operator], left: Value, right: Value, node: ast.AST) -> Expr:
        a, b = self.as_expr(left, node), self.as_expr(right, node)
        for operand in (a, b):
            if operand.type.optional or operand.type == NONE:
                raise self.may_be_none(operand, node)
            if operand.type not in (INT, FLOAT, BOOL):
                raise self.fail(
                    node,
                    f"{operand.type} has no arithmetic in a host function",
                    "host functions check, allocate and launch; kernels compute" if operand.type == TENSOR else None,
                )
        if operator is ast.Div:
            return apply("truediv", self.number(a, node, FLOAT), self.number(b, node, FLOAT))
        both = FLOAT if FLOAT in (a.type, b.type) else INT
        if operator is ast.Pow:
            if both == INT and isinstance(b, Const) and b.value >= 0:
                return apply("pow_int", self.number(a, node), self.number(b, node))
            if both == INT:
                raise self.fail(node, "an int to a power that is not known when building may be an int or a float")
            return apply("pow_float", self.number(a, node, FLOAT), self.number(b, node, FLOAT))
        name = _BINARY.get(operator)
        if name is None:
            raise self.fail(node, f"operator {operator.__name__} has no translation")
        if both == FLOAT and operator not in (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod):
            raise self.fail(node, f"operator {operator.__name__} needs ints")
        return apply(name, self.number(a, node, both), self.number(b, node, both), type=both)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return apply("not", self.condition(node.operand))
        operand = self.expr(node.operand)
        kind = FLOAT if operand.type == FLOAT else INT
        number = self.number(operand, node, kind)
        if isinstance(node.op, ast.UAdd):
            return number
        if isinstance(node.op, ast.Invert) and kind == FLOAT:
            raise self.fail(node, "~ needs an int")
        return apply("neg" if isinstance(node.op, ast.USub) else "invert", number, type=kind)

    def visit_BoolOp(self, node: ast.BoolOp) -> Value:
        """`and` and `or` of conditions; what the left side knows about None holds on the right."""
        outer = dict(self.names)
        is_and = isinstance(node.op, ast.And)
        done = self.condition(node.values[0])
        for previous, operand in zip(node.values, node.values[1:], strict=False):
            self.assume(previous, is_and)
            right = self.condition(operand)
            done = self.logical("and" if is_and else "or", done, right)
        self.names = outer
        return done

    def logical(self, name: str, left: Expr, right: Expr) -> Expr:
        if isinstance(left, Const):
            return right if left.value == (name == "and") else left
        return apply(name, left, right)

    def visit_Compare(self, node: ast.Compare) -> Value:
        done: Expr | None = None
        left = self.value(node.left)
        for operator, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node)
            part = self.compare(operator, left, right, node)
            done = part if done is None else self.logical("and", done, part)
            left = right
        assert done is not None
        return done

    def compare(self, operator: ast.cmpop, left: Value, right: Value, node: ast.Compare) -> Expr:
        if isinstance(operator, (ast.Is, ast.IsNot)):
            if right != NOTHING:
                raise self.fail(node, "`is` compares with None only", "use ==")
            value = self.as_expr(left, node)
            if value == NOTHING or not value.type.optional:
                result: Expr = Const(value == NOTHING, BOOL)
            else:
                result = apply("is_none", value)
            return result if isinstance(operator, ast.Is) else apply("not", result)
        if isinstance(operator, (ast.In, ast.NotIn)):
            if not isinstance(right, Tuple):
                raise self.fail(node, "`in` needs a tuple", "write x in (a, b)")
            found: Expr = Const(False, BOOL)
            for item in right.items:
                found = self.logical("or", found, self.compare(ast.Eq(), left, item, node))
            return found if isinstance(operator, ast.In) else apply("not", found)
        if isinstance(left, Method) and left.owner.type == DEVICE and isinstance(operator, (ast.Eq, ast.NotEq)):
            return self.compare_device_type(left, right, operator, node)
        a, b = self.as_expr(left, node), self.as_expr(right, node)
        for operand in (a, b):
            if operand.type.optional or operand.type == NONE:
                raise self.may_be_none(operand, node)
        name = _COMPARE[type(operator)]
        numeric = (INT, FLOAT, BOOL)
        if a.type in numeric and b.type in numeric:
            both = BOOL if a.type == b.type == BOOL else FLOAT if FLOAT in (a.type, b.type) else INT
            return apply(name, self.number(a, node, both), self.number(b, node, both))
        if a.type == b.type and name in ("eq", "ne"):
            if a.type == INTS:
                same = apply("same_ints", a, b)
                return same if name == "eq" else apply("not", same)
            if a.type in (DTYPE, DEVICE):
                if isinstance(a, Const) and isinstance(b, Const):
                    return Const((a.value == b.value) == (name == "eq"), BOOL)
                return Apply(name, (a, b), BOOL)
        raise self.fail(node, f"{a.type} and {b.type} cannot be compared with {name}")

    def compare_device_type(self, left: Method, right: Value, operator: ast.cmpop, node: ast.AST) -> Expr:
        owner = left.owner
        known = isinstance(right, Const) and right.value in ("cpu", "cuda") and left.name == "type"
        if not known or not (isinstance(owner, Apply) and owner.op == "device"):
            raise self.fail(node, "a device compares its type with 'cpu' or 'cuda', or with another device")
        assert isinstance(right, Const)
        is_cuda = apply("is_cuda", owner.operands[0])
        wanted = (right.value == "cuda") == isinstance(operator, ast.Eq)
        return is_cuda if wanted else apply("not", is_cuda)

    def visit_IfExp(self, node: ast.IfExp) -> Value:
        outer = dict(self.names)
        condition = self.condition(node.test)
        if isinstance(condition, Const):
            self.assume(node.test, condition.value)
            chosen = self.value(node.body if condition.value else node.orelse)
            self.names = outer
            return chosen
        self.assume(node.test, True)
        then = self.expr(node.body)
        self.names = dict(outer)
        self.assume(node.test, False)
        orelse = self.expr(node.orelse)
        self.names = outer
        kind = self.joined(then.type, orelse.type, node)
        return apply("select", condition, self.convert(then, kind), self.convert(orelse, kind), type=kind)

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

    # -- what is known about None -------------------------------------------------------------------------------------

    def assume(self, test: ast.expr, holds: bool) -> None:
        """Narrows the names in scope by a condition that holds, or does not."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.assume(test.operand, not holds)
        elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) == holds:
            for part in test.values:
                self.assume(part, holds)
        elif isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.left, ast.Name):
            comparator = test.comparators[0]
            if isinstance(comparator, ast.Constant) and comparator.value is None:
                is_none = isinstance(test.ops[0], ast.Is) == holds
                value = self.names.get(test.left.id)
                if isinstance(value, (Ref, Apply)) and value.type.optional:
                    narrowed = NOTHING if is_none else Apply("value", (value,), value.type.required)
                    self.names[test.left.id] = narrowed

    # -- calls --------------------------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> Value:
        function = self.value(node.func)
        if isinstance(function, Method):
            return self.call_method(function, node)
        if not isinstance(function, Object):
            raise self.fail(node, "this cannot be called")
        positional: list[Value] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                unpacked = self.value(argument.value)
                if not isinstance(unpacked, Tuple):
                    raise self.fail(argument, "* needs a tuple whose length is known when building")
                positional.extend(unpacked.items)
            else:
                positional.append(self.value(argument))
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self.fail(node, "** has no translation", "name the arguments")
            keywords[keyword.arg] = self.value(keyword.value)
        return self.call(function.value, positional, keywords, node)

    def call_method(self, method: Method, node: ast.Call) -> Value:
        if node.keywords:
            raise self.fail(node, f"{method.name} takes positional arguments only")
        arguments = [self.number(self.value(argument), argument) for argument in node.args]
        if method.name in ("size", "stride"):
            if not arguments:
                return apply("shape" if method.name == "size" else "strides", method.owner)
            if len(arguments) == 1:
                return apply(method.name, method.owner, arguments[0])
        elif not arguments:
            return apply(method.name, method.owner)
        raise self.fail(node, f"{method.name} takes {'one number' if method.name in ('size', 'stride') else 'no arguments'}")

    def call(self, function: Any, positional: Sequence[Value], keywords: dict[str, Value], node: ast.Call) -> Value:
        """Calls a Python object: the functions of the language first, what a subclass knows otherwise."""
        name = getattr(function, "__name__", "")
        if function in (min, max):
            flat = positional[0].items if len(positional) == 1 and isinstance(positional[0], Tuple) else positional
            return self.fold(name, list(flat), node)
        if function in _MATH:
            (value,) = self.exactly(1, name, positional, keywords, node)
            if _MATH[function] in ("floor", "ceil") and self.as_expr(value, node).type == INT:
                return value
            return apply(_MATH[function], self.number(value, node, FLOAT))
        if function is math.prod:
            (value,) = self.exactly(1, name, positional, keywords, node)
            return apply("prod", self.as_list(value, node))
        if function is abs:
            (value,) = self.exactly(1, name, positional, keywords, node)
            kind = FLOAT if self.as_expr(value, node).type == FLOAT else INT
            return apply("abs", self.number(value, node, kind), type=kind)
        if function in (int, float, bool):
            (value,) = self.exactly(1, name, positional, keywords, node)
            return self.to_number(function, self.as_expr(value, node), node)
        if function is tuple and len(positional) == 1:
            return positional[0]
        if function is len:
            (value,) = self.exactly(1, name, positional, keywords, node)
            if isinstance(value, Tuple):
                return Const(len(value.items), INT)
            expr = self.as_expr(value, node)
            if isinstance(expr, Apply) and expr.op in ("shape", "strides"):
                return apply("dim", expr.operands[0])
            if expr.type not in (INTS, FLOATS):
                raise self.fail(node, f"{expr.type} has no len()")
            return apply("len", expr)
        raise self.fail(
            node,
            f"{name or function!r} cannot be called in a host function",
            "host functions can call kp functions, kernels, math functions, min, max, abs, len, int, float, bool, "
            "and Python functions that consist of such code",
        )

    def exactly(
        self, count: int, name: str, positional: Sequence[Value], keywords: dict[str, Value], node: ast.AST
    ) -> Sequence[Value]:
        if len(positional) != count or keywords:
            raise self.fail(node, f"{name} takes {count} positional argument{'' if count == 1 else 's'} here")
        return positional

    def fold(self, name: str, values: list[Value], node: ast.AST) -> Expr:
        if len(values) < 2:
            raise self.fail(node, f"{name} takes two or more numbers")
        kinds = {self.as_expr(value, node).type for value in values}
        kind = FLOAT if FLOAT in kinds else INT
        done = self.number(values[0], node, kind)
        for value in values[1:]:
            done = apply(name, done, self.number(value, node, kind), type=kind)
        return done

    def to_number(self, function: type, value: Expr, node: ast.AST) -> Expr:
        if value.type.optional or value.type == NONE:
            raise self.may_be_none(value, node)
        if value.type not in (INT, FLOAT, BOOL):
            raise self.fail(node, f"{function.__name__}() needs a number, found {value.type}")
        if function is bool:
            return value if value.type == BOOL else apply("to_bool", value)
        if function is float:
            return self.number(value, node, FLOAT)
        return value if value.type == INT else apply("to_int", value)

    def rows(self, tensors: Sequence[Value], ndims: int, node: ast.AST) -> Value:
        """`kp.collapse_rows`: a hidden variable, and a tuple of its sizes and of each tensor's strides."""
        operands = [self.tensor(value, node) for value in tensors]
        held = self.let("rows", Apply("collapse_rows", (Const(ndims, INT), *operands), ROWS))
        sizes = Tuple(tuple(apply("rows_size", held, Const(i, INT)) for i in range(ndims)))
        strides = [
            Tuple(tuple(apply("rows_stride", held, Const(t, INT), Const(i, INT)) for i in range(ndims)))
            for t in range(len(operands))
        ]
        return Tuple((sizes, *strides))
