"""Translates the calls of a host function: methods of tensors, Python's functions, kp's own, and functions of the author."""

from __future__ import annotations

import abc
import ast
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelpack.opgen.host import suggestions
from kernelpack.opgen.host.expressions import Expressions
from kernelpack.opgen.host.ir import (
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
    Allocate,
    Apply,
    Check,
    Const,
    Expr,
    Ref,
)
from kernelpack.opgen.host.ops import apply
from kernelpack.opgen.host.source import source_of
from kernelpack.opgen.host.values import Method, Object, Tuple, Value
from kernelpack.opgen.stated.kernels import is_kernel

_MATH = {math.sqrt: "sqrt", math.exp: "exp", math.log: "log", math.log2: "log2", math.floor: "floor", math.ceil: "ceil"}


class BuiltinCalls(Expressions):
    """Calls that Python itself knows."""

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
        """Calls a Python object."""
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
                return apply("dim", expr.operand)
            if expr.type not in (INTS, FLOATS):
                raise self.fail(node, f"{expr.type} has no len()")
            return apply("len", expr)
        raise self.fail(
            node,
            f"{name or function!r} cannot be called in a host function",
            suggestions.for_function(function)
            or "host functions can call kp functions, kernels, math functions, min, max, abs, len, int, float, bool, "
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

    def rows(self, op: str, tensors: Sequence[Value], ndims: int, node: ast.AST) -> Value:
        """`kp.collapse_rows` and `kp.collapse_batches`: a hidden variable, and a tuple of its sizes and of each tensor's strides."""
        operands = [self.tensor(value, node) for value in tensors]
        held = self.let("rows", Apply(op, (Const(ndims, INT), *operands), ROWS))
        sizes = Tuple(tuple(apply("rows_size", held, Const(i, INT)) for i in range(ndims)))
        strides = [
            Tuple(tuple(apply("rows_stride", held, Const(t, INT), Const(i, INT)) for i in range(ndims)))
            for t in range(len(operands))
        ]
        return Tuple((sizes, *strides))


class Calls(BuiltinCalls):
    """Calls of kp's functions, and of Python functions, which are translated in place."""

    depth = 0
    """How many functions of the author are being translated in place."""
    in_loop = False
    assigned = ""
    """The name that the value of the current statement gets."""

    @abc.abstractmethod
    def statements(self, nodes: Sequence[ast.stmt]) -> None:
        """Translates statements into the current block."""

    def visit_Call(self, node: ast.Call) -> Value:
        name = (
            node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
        )
        if name == "check" and self.is_ours(self.value(node.func)):
            return self.call_check(node)  # before its message is taken for a value
        return super().visit_Call(node)

    @staticmethod
    def is_ours(value: Value) -> bool:
        return isinstance(value, Object) and str(getattr(value.value, "__module__", "")).startswith("kernelpack.")

    def call(self, function: Any, positional: Sequence[Value], keywords: dict[str, Value], node: ast.Call) -> Value:
        if is_kernel(function):
            cure = suggestions.for_function(function) or "launch it: kernel[grid](...)"
            raise self.fail(node, f"{function.__name__} is a kernel", cure)
        if self.is_ours(Object(function)):
            method = getattr(self, f"call_{getattr(function, '__name__', '')}", None)
            if method is not None:
                return self.call_bound(method, positional, keywords, node)
        if isinstance(function, type) and issubclass(function, tuple) and hasattr(function, "_fields"):
            return self.named_tuple(function, positional, keywords, node)
        is_torchs = str(getattr(function, "__module__", "")).partition(".")[0] == "torch"
        if inspect.isfunction(function) and not self.is_ours(Object(function)) and not is_torchs:
            return self.inline(function, positional, keywords, node)
        return super().call(function, positional, keywords, node)

    def call_bound(
        self, method: Callable[..., Value], positional: Sequence[Value], keywords: Mapping[str, Value], node: ast.Call
    ) -> Value:
        try:
            inspect.signature(method).bind(node, *positional, **keywords)
        except TypeError as error:
            raise self.fail(node, str(error)) from None
        return method(node, *positional, **keywords)

    def inline(
        self, function: Callable[..., Any], positional: Sequence[Value], keywords: Mapping[str, Value], node: ast.Call
    ) -> Value:
        """Translates the body of a Python function in place of its call."""
        if self.depth >= 8:
            raise self.fail(node, f"{function.__name__} calls itself, or functions nest deeper than 8")
        try:
            bound = inspect.signature(function).bind(*positional, **keywords)
        except TypeError as error:
            raise self.fail(node, f"{function.__name__}: {error}") from None
        source = source_of(function)
        defaults = {
            name: self.constant(parameter.default, node)
            for name, parameter in inspect.signature(function).parameters.items()
            if parameter.default is not inspect.Parameter.empty
        }
        outer, names = self.source, self.names
        self.source, self.names = source, {**defaults, **bound.arguments}
        self.depth += 1
        body = source.tree.body
        *first, last = body
        self.statements(first if isinstance(last, ast.Return) else body)
        result: Value = NOTHING
        if isinstance(last, ast.Return) and last.value is not None:
            result = self.value(last.value)
        self.depth -= 1
        self.source, self.names = outer, names
        return result

    def named_tuple(self, of: Any, positional: Sequence[Value], keywords: Mapping[str, Value], node: ast.Call) -> Value:
        """Makes a named tuple, as Python does."""
        try:
            bound = inspect.signature(of).bind(*positional, **keywords).arguments
        except TypeError as error:
            raise self.fail(node, f"{of.__name__}: {error}") from None
        defaults = {name: self.constant(value, node) for name, value in of._field_defaults.items()}
        return Tuple(tuple((defaults | bound)[name] for name in of._fields), of)

    def call_check(self, node: ast.Call) -> Value:
        if not 1 <= len(node.args) <= 2 or node.keywords:
            raise self.fail(node, "check takes a condition and a message")
        default = (f"{ast.unparse(node.args[0])} does not hold",)
        self.check(self.condition(node.args[0]), self.message(node.args[1]) if len(node.args) == 2 else default)
        self.assume(node.args[0], True)
        return NOTHING

    def check(self, condition: Expr, message: tuple[str | Expr, ...]) -> None:
        if condition != Const(True, BOOL):
            self.block.append(Check(condition, message))

    def message(self, node: ast.expr) -> tuple[str | Expr, ...]:
        """Returns a str or f-string as text and values in turn."""
        if not isinstance(node, ast.JoinedStr):
            value = self.value(node)
            if not isinstance(value, Const) or value.type != TEXT:
                raise self.fail(node, "a message is a str or an f-string")
            return (value.value,)
        parts: list[str | Expr] = []
        for piece in node.values:
            if isinstance(piece, ast.Constant):
                parts.append(str(piece.value))
                continue
            assert isinstance(piece, ast.FormattedValue)
            if piece.format_spec is not None or piece.conversion != -1:
                raise self.fail(node, "an f-string here takes no format", "write {value} alone")
            value = self.value(piece.value)
            known = isinstance(value, Const) and value.type in (TEXT, NONE, DTYPE)
            parts.append(str(value.value) if known and isinstance(value, Const) else self.as_expr(value, piece))
        return tuple(parts)

    def call_cdiv(self, node: ast.Call, x: Value, div: Value) -> Value:
        return apply("cdiv", self.number(x, node), self.number(div, node))

    def call_next_power_of_2(self, node: ast.Call, n: Value) -> Value:
        return apply("next_power_of_2", self.number(n, node))

    def call_num_threads(self, node: ast.Call) -> Value:
        return apply("num_threads")

    def call_empty(self, node: ast.Call, shape: Value, dtype: Value, device: Value) -> Value:
        return self.allocate(node, shape, None, dtype, device)

    def call_empty_strided(self, node: ast.Call, shape: Value, strides: Value, dtype: Value, device: Value) -> Value:
        return self.allocate(node, shape, strides, dtype, device)

    def call_empty_like(self, node: ast.Call, x: Value, shape: Value = NOTHING, dtype: Value = NOTHING) -> Value:
        tensor = self.tensor(x, node)
        return self.allocate(
            node,
            apply("shape", tensor) if shape == NOTHING else shape,
            None,
            apply("dtype", tensor) if dtype == NOTHING else dtype,
            apply("device", tensor),
        )

    def allocate(self, node: ast.Call, shape: Value, strides: Value | None, dtype: Value, device: Value) -> Ref:
        kind, place = self.as_expr(dtype, node), self.as_expr(device, node)
        for value, expected in ((kind, DTYPE), (place, DEVICE)):
            if value.type != expected:
                raise self.fail(node, f"expected a {expected}, found {value.type}", "write for example x.dtype, x.device")
        if self.in_loop:
            raise self.fail(node, "an allocation inside a loop has no translation", "allocate once, with another dimension")
        variable = self.variable(self.assigned or "scratch", TENSOR)
        steps = None if strides is None else self.as_list(strides, node)
        self.block.append(Allocate(variable, self.as_list(shape, node), steps, kind, place, self.source.at(node)))
        return Ref(variable)

    def call_broadcast_strides(self, node: ast.Call, x: Value, shape: Value) -> Value:
        tensor = self.tensor(x, node, none_ok=True)
        held = self.let("strides", apply("broadcast_strides", tensor, self.as_list(shape, node)))
        if isinstance(shape, Tuple):
            return Tuple(tuple(apply("at", held, Const(index, INT), type=INT) for index in range(len(shape.items))))
        return held

    def call_strides_like(self, node: ast.Call, x: Value, shape: Value) -> Value:
        return self.let("strides", apply("strides_like", self.tensor(x, node), self.as_list(shape, node)))

    def call_broadcast_shapes(self, node: ast.Call, a: Value, b: Value) -> Value:
        return self.let("shape", apply("broadcast_shapes", self.as_list(a, node), self.as_list(b, node)))

    def call_collapse_rows(self, node: ast.Call, *tensors: Value, ndims: Value = NOTHING) -> Value:
        return self.collapsed("collapse_rows", tensors, ndims, node)

    def call_collapse_batches(self, node: ast.Call, *tensors: Value, ndims: Value = NOTHING) -> Value:
        return self.collapsed("collapse_batches", tensors, ndims, node)

    def collapsed(self, name: str, tensors: Sequence[Value], ndims: Value, node: ast.Call) -> Value:
        if not isinstance(ndims, Const) or ndims.type != INT or not 1 <= ndims.value <= 4:
            raise self.fail(node, "ndims is a number from 1 to 4", f"write kp.{name}(x, out, ndims=2)")
        if not tensors:
            raise self.fail(node, f"{name} takes at least one tensor")
        return self.rows(name, tensors, ndims.value, node)
