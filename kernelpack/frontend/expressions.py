"""Expressions: names, constants, operators, attributes, indexing. Compile-time operands are Python's, run-time ones operators.py's."""

from __future__ import annotations

import ast
import enum
import inspect
import math
import operator
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from kernelpack.errors import CompilationError
from kernelpack.frontend import suggestions
from kernelpack.frontend.local_functions import LocalFunctions
from kernelpack.frontend.scope import Undefined, describe_type, tensors_in
from kernelpack.frontend.visitor import as_value
from kernelpack.ir.locations import HOMES_OF_THE_LANGUAGE
from kernelpack.kernel.aggregates import aggregate_replace, plain, user_aggregate
from kernelpack.kernel.builtin import METHODS, BoundMethod, builtin_signature
from kernelpack.kernel.jit import JITFunction, is_constexpr_function
from kernelpack.kernel.structured_types import constexpr_type, indexed_type, tuple_type
from kernelpack.kernel.types import dtype
from kernelpack.kernel.values import aggregate, constexpr, tensor, unwrap
from kernelpack.language.unsupported import UNSUPPORTED
from kernelpack.limits import check_compile_time_value, check_format
from kernelpack.semantics import operators, tiles
from kernelpack.semantics.overflow import checked_arithmetic

# operator: (its symbol in operators.py, Python's function)
BINARY: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_),
    ast.BitXor: ("^", operator.xor),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
    ast.Pow: ("**", operator.pow),
    ast.MatMult: ("@", operator.matmul),
}
_ONLY_COMPILE_TIME = {"**": "write x * x, or tl.exp2(y * tl.log2(x))", "@": "use tl.dot(x, y)"}

UNARY: dict[type[ast.unaryop], tuple[Callable[..., tensor], Callable[[Any], Any]]] = {
    ast.USub: (operators.negative, operator.neg),
    ast.UAdd: (lambda builder, value: value, operator.pos),
    ast.Invert: (operators.invert, operator.invert),
    ast.Not: (operators.logical_not, operator.not_),
}

COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Is: ("is", operator.is_),
    ast.IsNot: ("is not", operator.is_not),
    ast.In: ("in", lambda value, container: value in container),
    ast.NotIn: ("not in", lambda value, container: value not in container),
}

PYTHON_FUNCTIONS: dict[str, Any] = {
    function.__name__: function
    for function in (abs, bool, float, getattr, hasattr, int, isinstance, len, list, max, min, print, range, str, tuple, type)
}

_TENSOR_ATTRIBUTES = ("T", "dtype", "numel", "shape", "type")

_CONVERSIONS: dict[int, Callable[[Any], Any]] = {-1: lambda value: value, ord("s"): str, ord("r"): repr, ord("a"): ascii}


class Expressions(LocalFunctions):
    """Visits expressions without calls and branches."""

    # ---- names and constants ----

    def visit_Constant(self, node: ast.Constant) -> Any:
        if node.value is not None and not isinstance(node.value, (bool, int, float, str)):
            raise CompilationError(f"constants of type {type(node.value).__name__} are not part of the kernel language")
        return node.value

    def visit_Name(self, node: ast.Name) -> Any:
        name = node.id
        own = name in self.scope
        found, value = (True, self.scope[name]) if own else self.captured(name)
        if found:
            if isinstance(value, Undefined):
                raise CompilationError(f"{name} has no value here: {value.reason}", cure=value.cure)
            if own:
                self.read.add((name, id(value)))
            return value
        if name in self.outer:
            value = unwrap(self.outer[name])
            is_data = isinstance(value, (bool, int, float, str, list, tuple, dict))
            allowed = is_data and self.module.plain_globals
            if isinstance(self.outer[name], constexpr) or _readable(value) or allowed:
                return _frozen(value)
            if name not in PYTHON_FUNCTIONS:
                raise _not_readable(name, value)
        if name in PYTHON_FUNCTIONS:
            return PYTHON_FUNCTIONS[name]
        known = [*self.scope, *self.outer, *PYTHON_FUNCTIONS]
        cure = suggestions.for_other_path(node, self.function.source.tree) or suggestions.for_name(name, known)
        raise CompilationError(f"{name} is not defined", cure=cure)

    def visit_Tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return self.elements(node.elts)

    def visit_List(self, node: ast.List) -> tuple[Any, ...]:
        return self.elements(node.elts)

    def elements(self, nodes: Sequence[ast.expr]) -> tuple[Any, ...]:
        """Returns the values of expressions, those after a * spread out."""
        values: list[Any] = []
        for node in nodes:
            if not isinstance(node, ast.Starred):
                values.append(self.visit(node))
                continue
            spread = self.visit(node.value)
            if not isinstance(spread, tuple):
                raise CompilationError(f"* spreads tuples, not {describe_type(spread)}")
            values += spread
        return tuple(values)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> str:
        return "".join(self.visit(part) for part in node.values)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> str:
        value = self.visit(node.value)
        if next(tensors_in(value), None) is not None:
            raise CompilationError(
                f"an f-string cannot hold `{ast.unparse(node.value)}`, which has a value at run time only",
                cure='give it to print as an argument of its own: print("x", x)',
            )
        convert = _CONVERSIONS[node.conversion]
        specification = self.visit(node.format_spec) if node.format_spec is not None else ""
        check_format(specification)
        return str(self.fold(node.value, lambda entry: format(convert(entry), specification), value))

    # ---- operators ----

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        left, right = self.visit(node.left), self.visit(node.right)
        symbol, python = BINARY[type(node.op)]
        if isinstance(left, tensor) or isinstance(right, tensor):
            if symbol in _ONLY_COMPILE_TIME:
                raise CompilationError(f"{symbol} does not take run-time values", cure=_ONLY_COMPILE_TIME[symbol])
            return self.arithmetic(symbol, left, right)
        check_compile_time_value(symbol, left, right)
        if isinstance(left, tuple) or isinstance(right, tuple):  # concatenation and repetition; elements do not matter
            return self.sequence_operator(node, symbol, left, right)
        return self.fold(node, python, left, right)

    def arithmetic(self, symbol: str, left: Any, right: Any) -> tensor:
        compute = checked_arithmetic if self.checks_overflow else operators.arithmetic
        return compute(self.builder, symbol, left, right)

    def sequence_operator(self, node: ast.BinOp, symbol: str, left: Any, right: Any) -> Any:
        if symbol == "+" and isinstance(left, tuple) and isinstance(right, tuple):
            return tuple(left) + tuple(right)
        if symbol == "*" and isinstance(left, tuple) and isinstance(right, int):
            return left * right
        if symbol == "*" and isinstance(left, int) and isinstance(right, tuple):
            return left * right
        raise CompilationError(f"{symbol} does not take {describe_type(left)} and {describe_type(right)}")

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self.visit(node.operand)
        run_time, python = UNARY[type(node.op)]
        if isinstance(node.op, ast.USub) and isinstance(value, tensor) and value.dtype.is_int():
            return self.arithmetic("-", operators.constant(self.builder, 0, value.type), value)
        return run_time(self.builder, value) if isinstance(value, tensor) else self.fold(node, python, value)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        """Compile-time operands decide as early as in Python; run-time operands are all evaluated and combined."""
        conjunction = isinstance(node.op, ast.And)
        result: Any = None
        for entry in node.values:
            value = self.visit(entry)
            if isinstance(value, tensor):
                symbol = "&" if conjunction else "|"
                result = operators.logical(self.builder, symbol, result, value) if isinstance(result, tensor) else value
            elif bool(value) != conjunction:
                return value
            elif not isinstance(result, tensor):
                result = value
        return result

    def visit_Compare(self, node: ast.Compare) -> Any:
        if len(node.ops) != 1:
            raise CompilationError(
                f"chained comparisons such as `{ast.unparse(node)}` are not part of the kernel language",
                cure="write them apart: (a < b) & (b < c)",
            )
        left, right = self.visit(node.left), self.visit(node.comparators[0])
        symbol, python = COMPARISONS[type(node.ops[0])]
        if symbol in ("is", "is not"):
            if left is not None and right is not None and (isinstance(left, tensor) or isinstance(right, tensor)):
                raise CompilationError(f"`{symbol}` compares with None only", cure=f"write {'==' if symbol == 'is' else '!='}")
            return python(left, right)
        if isinstance(left, tensor) or isinstance(right, tensor):
            if symbol in ("in", "not in"):
                raise CompilationError(f"`{symbol}` does not take run-time values", cure="compare with == and |")
            if left is None or right is None:
                raise CompilationError("a run-time value is never None", cure="write `is None`, decided at compile time")
            return operators.compare(self.builder, symbol, left, right)
        return self.fold(node, python, left, right)

    # ---- attributes and indexing ----

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        value = self.visit(node.value)
        name = node.attr
        if isinstance(value, tensor):
            return self.tensor_attribute(value, name)
        if isinstance(value, aggregate):
            return self.aggregate_attribute(value, name)
        if isinstance(value, ModuleType):
            return self.module_attribute(node, value, name)
        if operators.is_number(value):
            return self.number_attribute(value, name)
        if isinstance(value, tuple) and name in getattr(value, "_fields", ()):  # one may be called `value` or `type`
            return unwrap(getattr(value, name))
        if name == "value" and (value is None or isinstance(value, (str, dtype, tuple, JITFunction))):
            return value  # what is a constexpr elsewhere is its value here
        if name == "type" and (value is None or isinstance(value, (str, tuple))):
            return type_of(value)
        if isinstance(value, JITFunction):
            raise CompilationError(f"kernels cannot look into {value.__name__}: it has no attribute {name!r} for them")
        if isinstance(value, type) and issubclass(value, user_aggregate):
            return getattr(value, name, None) or self.fold(node, getattr, value, name)
        if not isinstance(value, tuple):
            return self.fold(node, getattr, value, name)
        if not hasattr(value, name):
            raise CompilationError(
                f"a tuple has no attribute {name!r}", cure=suggestions.for_attribute(name, getattr(value, "_fields", ()))
            )
        return unwrap(getattr(value, name))

    def tensor_attribute(self, value: tensor, name: str) -> Any:
        if isinstance(value.type, indexed_type):
            return value.type.attribute(self.builder, value, name)
        if name == "T":
            return tiles.transpose(self.builder, value)
        if name in _TENSOR_ATTRIBUTES:
            return getattr(value, name)
        if name in METHODS:
            return BoundMethod(METHODS[name], value)
        raise CompilationError(
            f"run-time values have no attribute {name!r}", cure=suggestions.for_attribute(name, [*METHODS, *_TENSOR_ATTRIBUTES])
        )

    def aggregate_attribute(self, value: aggregate, name: str) -> Any:
        if isinstance(value, user_aggregate):
            return self.member_of(value, name)
        if name in value.attributes:
            return getattr(value, name)
        if name in value.methods:
            return BoundMethod(value.methods[name], value)
        raise CompilationError(
            f"{type(value).__name__} has no attribute {name!r}",
            cure=suggestions.for_attribute(name, [*value.methods, *value.attributes]),
        )

    def member_of(self, value: user_aggregate, name: str) -> Any:
        """Returns a field, or a method bound to the aggregate."""
        if name == "type" or name in value.fields:
            return plain(getattr(value, name))
        if name.startswith("__") or not hasattr(type(value), name):
            methods = [entry for entry in dir(type(value)) if not entry.startswith("_")]
            raise CompilationError(
                f"{type(value).__name__} has no attribute {name!r}",
                cure=suggestions.for_attribute(name, [*value.fields, *methods]),
            )
        found = inspect.getattr_static(type(value), name)
        if isinstance(found, (staticmethod, classmethod)):
            return getattr(value, name)
        if isinstance(found, property):
            return as_value(getattr(value, name))
        return BoundMethod(found, value) if callable(found) else as_value(found)

    def number_attribute(self, value: Any, name: str) -> Any:
        """Numbers known at compile time answer as the tensors that they would be, but for their type, which says the value."""
        if name == "value":
            return value
        if name == "type":
            return constexpr_type(value)
        if name == "dtype":
            return operators.type_of_number(value)
        if name in METHODS:
            return BoundMethod(METHODS[name], operators.to_tensor(self.builder, value))
        raise CompilationError(f"the number {value} has no attribute {name!r}", cure=suggestions.for_attribute(name, METHODS))

    def module_attribute(self, node: ast.Attribute, module: ModuleType, name: str) -> Any:
        if not hasattr(module, name):
            known = module.__name__.startswith("kernelpack.")
            raise CompilationError(
                f"{ast.unparse(node)} is not supported"
                if known and name in UNSUPPORTED
                else f"{module.__name__} has no {name!r}",
                cure=suggestions.for_member(name, dir(module), f"{ast.unparse(node.value)}.") if known else None,
            )
        value = unwrap(getattr(module, name))
        if (
            _readable(value)
            or isinstance(value, (bool, int, float, str, type))  # a class may be the namespace of static functions
            or getattr(value, "__module__", "") == math.__name__
            or (inspect.isfunction(value) and suggestions.for_foreign(value) is None)  # called while compiling
        ):
            return _frozen(value)
        raise _not_readable(ast.unparse(node), value)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        value, key = self.visit(node.value), self.visit(node.slice)
        if isinstance(value, user_aggregate) and hasattr(type(value), "__getitem__"):
            method = inspect.getattr_static(type(value), "__getitem__")
            return self.call(node, method, [value, key], {})
        if isinstance(value, JITFunction):
            raise CompilationError(
                f"{value.__name__} is launched with a grid from outside only", cure=f"call it: {value.__name__}(...)"
            )
        if isinstance(value, tensor):
            index = value.type.index if isinstance(value.type, indexed_type) else tiles.index
            return index(self.builder, value, key if isinstance(key, tuple) else (key,))
        if isinstance(value, (tuple, str, dict)):
            if next(tensors_in(key), None) is not None:
                raise CompilationError(
                    f"a {type(value).__name__} is indexed with a compile-time {'key' if isinstance(value, dict) else 'integer'}",
                    cure="unroll the loop: `for i in tl.static_range(n):`",
                )
            try:
                return _frozen(unwrap(value[key])) if isinstance(value, dict) else value[key]
            except (IndexError, KeyError, TypeError) as problem:
                scalar = value == () and isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
                cure = (
                    "a scalar has no shape; a pointer does not know its tensor's: pass sizes as arguments" if scalar else None
                )
                raise CompilationError(f"`{ast.unparse(node)}`: {problem}", cure=cure) from None
        raise CompilationError(
            f"{describe_type(value)} cannot be indexed",
            cure="load through a pointer: tl.load(ptr + i)" if value is None else None,
        )

    def visit_Slice(self, node: ast.Slice) -> slice:
        return slice(*(None if part is None else self.visit(part) for part in (node.lower, node.upper, node.step)))

    def call(self, node: ast.expr, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError


def _readable(value: Any) -> bool:
    """Whether kernels may read a global: what cannot change between compilations, or is part of the language."""
    return (
        value is None
        or isinstance(value, (ModuleType, JITFunction, dtype, enum.Enum))
        or builtin_signature(value) is not None
        or is_constexpr_function(value)
        or is_constructor(value)
        or (isinstance(value, type) and (issubclass(value, enum.Enum) or value.__module__.startswith(HOMES_OF_THE_LANGUAGE)))
    )


def is_constructor(value: Any) -> bool:
    """Whether a value is a class of named tuples or aggregates, or makes instances of one."""
    return value is aggregate_replace or (
        isinstance(value, type)
        and (issubclass(value, user_aggregate) or (issubclass(value, tuple) and hasattr(value, "_fields")))
    )


def type_of(value: Any) -> dtype:
    """Returns the type of a value: of a compile-time value, the value itself."""
    if isinstance(value, (tensor, aggregate)):
        return value.type
    if isinstance(value, tuple):
        return tuple_type([type_of(entry) for entry in value], getattr(value, "_fields", None))
    return constexpr_type(value)


def _not_readable(name: str, value: Any) -> CompilationError:
    foreign = suggestions.for_foreign(value)
    if foreign is not None:
        return CompilationError(f"{name} is not part of the kernel language", cure=foreign)
    if callable(value) and not isinstance(value, type):
        return CompilationError(
            f"{name} is a plain Python function, which kernels cannot call",
            cure="decorate it with @kernelpack.jit, or with @kernelpack.constexpr_function if it computes compile-time values",
        )
    return CompilationError(
        f"Cannot access global variable {name} from within a @jit function: it is a plain Python global "
        f"({type(value).__name__}), which may change after the kernel was compiled",
        cure=f"make it a compile-time constant, {name} = tl.constexpr(...), or pass it as an argument",
    )


def _frozen(value: Any) -> Any:
    """Returns a global's value as a value of the language: lists are tuples."""
    return tuple(_frozen(unwrap(entry)) for entry in value) if isinstance(value, (list, tuple)) else value
