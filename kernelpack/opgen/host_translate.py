"""Translates a host function, statement by statement, into the host IR. What has no translation is an error at its line."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelpack.errors import HostFunctionError
from kernelpack.opgen.host_expressions import Expressions, Grid, Meta, Method, Object, Tuple, Value
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
    TENSOR,
    TEXT,
    Allocate,
    Apply,
    Assign,
    Check,
    Const,
    Declare,
    Expr,
    For,
    HostFunction,
    HostType,
    If,
    Launch,
    Let,
    Ref,
    Return,
    Statement,
    Variable,
    references,
    returns_always,
    walk_statements,
)
from kernelpack.opgen.host_ops import apply
from kernelpack.opgen.host_outputs import assign_outputs
from kernelpack.opgen.host_source import source_of
from kernelpack.opgen.kernels import is_kernel, jit_function, kernel_parameters
from kernelpack.opgen.schema import Argument, Schema

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion", "debug")
"""Keywords of a launch that are compile options, not kernel arguments."""

_RESERVED = [
    "alignas",
    "alignof",
    "and",
    "asm",
    "auto",
    "bool",
    "break",
    "case",
    "catch",
    "char",
    "class",
    "const",
    "constexpr",
    "continue",
    "decltype",
    "default",
    "delete",
    "do",
    "double",
    "else",
    "enum",
    "explicit",
    "export",
    "extern",
    "false",
    "float",
    "for",
    "friend",
    "goto",
    "if",
    "inline",
    "int",
    "int64_t",
    "long",
    "mutable",
    "namespace",
    "new",
    "noexcept",
    "not",
    "nullptr",
    "operator",
    "or",
    "private",
    "protected",
    "public",
    "register",
    "return",
    "short",
    "signed",
    "sizeof",
    "static",
    "struct",
    "switch",
    "template",
    "this",
    "throw",
    "true",
    "try",
    "typedef",
    "typename",
    "union",
    "unsigned",
    "using",
    "virtual",
    "void",
    "volatile",
    "while",
    "xor",
    "call",
    "facts",
    "kp",
    "op_",
    "point",
    "slots",
    "std",
    "torch",
    "variant",
]
_ARGUMENT_TYPES = {
    "Tensor": TENSOR,
    "int": INT,
    "SymInt": INT,
    "float": FLOAT,
    "bool": BOOL,
    "ScalarType": DTYPE,
    "Device": DEVICE,
}


def translate(function: Callable[..., Any], schema: Schema) -> HostFunction:
    """Returns a host function as host IR. Raises HostFunctionError."""
    source = source_of(function)
    parameters = list(inspect.signature(function).parameters)
    expected = [argument.name for argument in schema.arguments]
    if parameters != expected:
        raise HostFunctionError(
            f"{schema.name} takes ({', '.join(parameters)}), its schema ({', '.join(expected)})",
            location=source.at(source.tree),
            cure="give the host function the schema's arguments, in the schema's order",
        )
    translator = _Translator(source, dict.fromkeys(_RESERVED, 1))
    arguments = tuple(translator.variable(argument.name, _type_of(argument)) for argument in schema.arguments)
    for argument, variable in zip(schema.arguments, arguments, strict=True):
        translator.names[argument.name] = Ref(variable)
    translator.returns = [_ARGUMENT_TYPES[result.type.text] for result in schema.returns]
    translator.statements(source.tree.body)
    body = tuple(translator.block)
    if schema.returns and not returns_always(body):
        raise source.fail(source.tree, f"{schema.name} can end without return, its schema promises a result")
    body = assign_outputs(body, arguments)
    launches = tuple(statement for statement in walk_statements(body) if isinstance(statement, Launch))
    if not launches:
        raise source.fail(source.tree, f"{schema.name} launches no kernel", "launch one: kernel[grid](...)")
    return HostFunction(schema.name, schema, arguments, body, source.at(source.tree), launches)


def _type_of(argument: Argument) -> HostType:
    if argument.type.is_list:
        return FLOATS if argument.type.text == "float" else INTS
    return HostType(_ARGUMENT_TYPES[argument.type.text].name, argument.type.optional)


@dataclass(frozen=True)
class Branch:
    """A branch of an if: its statements, and what names stand for at its end."""

    block: list[Statement]
    names: dict[str, Value]

    def names_of(self, variable: Variable) -> list[str]:
        """Returns the names whose values need a variable."""
        return [name for name, value in self.names.items() if variable in _variables(value)]


def _variables(value: Value) -> set[Variable]:
    if isinstance(value, Tuple):
        return set().union(*map(_variables, value.items))
    if isinstance(value, Grid):
        return set().union(*map(_variables, value.names.values()))
    if isinstance(value, Method):
        return references(value.owner)
    return references(value) if isinstance(value, (Const, Ref, Apply)) else set()


class _Translator(Expressions):
    returns: list[HostType]
    hint = ""
    launches = 0
    depth = 0
    in_loop = False

    def statements(self, nodes: Sequence[ast.stmt]) -> None:
        for index, node in enumerate(nodes):
            method = getattr(self, f"visit_{type(node).__name__}", None)
            if method is None:
                raise self.fail(node, f"{type(node).__name__} has no translation in a host function")
            method(node)
            if returns_always(tuple(self.block)):
                if index + 1 < len(nodes) and isinstance(node, (ast.Return, ast.Raise)):
                    raise self.fail(nodes[index + 1], "this is never reached")
                break

    def branch(self, nodes: Sequence[ast.stmt], test: ast.expr, holds: bool) -> Branch:
        """Translates a branch in a scope of its own."""
        names, block = self.names, self.block
        self.names, self.block = dict(names), []
        self.assume(test, holds)
        self.statements(nodes)
        done = Branch(self.block, self.names)
        self.names, self.block = names, block
        return done

    # -- assignments --------------------------------------------------------------------------------------------------

    def visit_Assign(self, node: ast.Assign) -> None:
        target = node.targets[0]
        self.hint = target.id if isinstance(target, ast.Name) else ""
        value = self.value(node.value)
        self.hint = ""
        for target in node.targets:
            self.assign(target, value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit_Assign(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        left, right = self.value(node.target), self.value(node.value)
        self.assign(node.target, self.binary(type(node.op), left, right, node))

    def assign(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for element, item in zip(target.elts, self.items(value, target, len(target.elts)), strict=True):
                self.assign(element, item)
        elif isinstance(target, ast.Name):
            keep = isinstance(value, Apply) and value.op not in ("shape", "strides", "value")
            self.names[target.id] = self.let(target.id, value) if keep and isinstance(value, Apply) else value
        else:
            raise self.fail(target, "only names can be assigned", "tensors are written by kernels, not by host functions")

    # -- control flow -------------------------------------------------------------------------------------------------

    def visit_If(self, node: ast.If) -> None:
        condition = self.condition(node.test)
        if isinstance(condition, Const):
            self.assume(node.test, condition.value)
            self.statements(node.body if condition.value else node.orelse)
            return
        before = self.names
        then = self.branch(node.body, node.test, True)
        orelse = self.branch(node.orelse, node.test, False)
        if returns_always(tuple(then.block)):
            self.names = orelse.names
        elif returns_always(tuple(orelse.block)):
            self.names = then.names
        else:
            assigned = _assigned(node.body) | _assigned(node.orelse)
            merged = dict(before)
            for name in dict.fromkeys([*then.names, *orelse.names]):
                if name in assigned:
                    merged[name] = self.merge(name, then.names.get(name), orelse.names.get(name), then, orelse, node)
            self.names = merged
        self.block.append(If(condition, tuple(then.block), tuple(orelse.block)))

    def merge(self, name: str, a: Value | None, b: Value | None, then: Branch, orelse: Branch, node: ast.If) -> Value:
        """Returns what a name stands for after an if: the same as before it, or a variable that each branch assigns."""
        if a is not None and a == b:
            return a
        if a is None or b is None:
            return self.poison(f"{name!r} is assigned in only one branch of the if at line {node.lineno}", "assign it in both")
        if isinstance(a, Tuple) and isinstance(b, Tuple) and len(a.items) == len(b.items):
            pairs = enumerate(zip(a.items, b.items, strict=True))
            return Tuple(tuple(self.merge(f"{name}_{index}", x, y, then, orelse, node) for index, (x, y) in pairs))
        if isinstance(a, Tuple) or isinstance(b, Tuple):
            a, b = self.as_list(a, node), self.as_list(b, node)
        if isinstance(a, (Const, Ref, Apply)) and isinstance(b, (Const, Ref, Apply)):
            try:
                kind = self.joined(a.type, b.type, node)
            except HostFunctionError as error:
                return self.poison(f"{name!r} has no single type: {error.message}", "use two names")
            variable = self.variable(name, kind)
            self.block.append(Declare(variable))
            for branch, value in ((then, a), (orelse, b)):
                last = branch.block[-1] if branch.block else None
                if isinstance(last, Let) and value == Ref(last.variable) and branch.names_of(last.variable) == [name]:
                    value = last.value  # the branch computed it for this name alone
                    branch.block.pop()
                branch.block.append(Assign(variable, self.convert(value, kind)))
            return Ref(variable)
        return self.poison(f"{name!r} is one thing or another after the if at line {node.lineno}", "launch inside the branches")

    def poison(self, message: str, cure: str) -> Value:
        """Returns a value that is an error when used."""
        return Object(HostFunctionError(message, cure=cure))

    def visit_For(self, node: ast.For) -> None:
        bounds = node.iter
        called = isinstance(bounds, ast.Call) and self.value(bounds.func) == Object(range)
        if (
            not called
            or not isinstance(bounds, ast.Call)
            or bounds.keywords
            or not isinstance(node.target, ast.Name)
            or node.orelse
        ):
            raise self.fail(node, "a for loop goes over range(...)", "write for i in range(n): ...")
        numbers = [self.number(self.value(argument), argument) for argument in bounds.args]
        if not 1 <= len(numbers) <= 3:
            raise self.fail(node, "range takes one to three numbers")
        start, stop = (Const(0, INT), numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])
        step: Expr = numbers[2] if len(numbers) == 3 else Const(1, INT)
        if not isinstance(step, Const) or step.value == 0:
            raise self.fail(node, "the step of a range is a number other than 0")
        carried: dict[str, Variable] = {}
        for name in sorted(_assigned(node.body) & self.names.keys()):
            value = self.names[name]
            if isinstance(value, (Const, Ref, Apply)):
                carried[name] = self.variable(name, value.type)
                self.block.append(Declare(carried[name], value))
                self.names[name] = Ref(carried[name])
            elif not (isinstance(value, Object) and isinstance(value.value, HostFunctionError)):
                raise self.fail(node, f"{name!r} is a {type(value).__name__.lower()} and changes in the loop", "use numbers")
        before, block, in_loop = dict(self.names), self.block, self.in_loop
        counter = self.variable(node.target.id, INT)
        self.names[node.target.id] = Ref(counter)
        self.block, self.in_loop = [], True
        self.statements(node.body)
        ends = {name: self.names[name] for name in carried if self.names[name] != Ref(carried[name])}
        for name, value in ends.items():
            expr = self.convert(self.as_expr(value, node), carried[name].type)
            if expr.type != carried[name].type:
                raise self.fail(node, f"{name!r} changes from {carried[name].type} to {expr.type} in the loop", "use two names")
            ends[name] = self.let(f"next_{name}", expr)
        for name, value in ends.items():
            self.block.append(Assign(carried[name], self.as_expr(value, node)))
        body, self.block, self.names, self.in_loop = self.block, block, before, in_loop
        for name in (_assigned(node.body) | {node.target.id}) - before.keys():
            self.names[name] = self.poison(
                f"{name!r} is assigned inside the loop at line {node.lineno} only", "assign it before"
            )
        self.block.append(For(counter, start, stop, step, tuple(body)))

    def visit_Return(self, node: ast.Return) -> None:
        if self.depth:
            raise self.fail(node, "a function that a host function calls returns once, at its end")
        if self.in_loop:
            raise self.fail(node, "return inside a loop has no translation", "return after it")
        value = self.value(node.value) if node.value is not None else Tuple(())
        values = value.items if isinstance(value, Tuple) else () if value == NOTHING else (value,)
        if len(values) != len(self.returns):
            raise self.fail(node, f"returns {len(values)} values, the schema has {len(self.returns)}")
        results: list[Expr] = []
        for item, kind in zip(values, self.returns, strict=True):
            results.append(self.tensor(item, node) if kind == TENSOR else self.number(item, node, kind))
        self.block.append(Return(tuple(results), self.source.at(node)))

    def visit_Raise(self, node: ast.Raise) -> None:
        if not isinstance(node.exc, ast.Call) or len(node.exc.args) > 1 or node.exc.keywords:
            raise self.fail(node, "raise takes an exception with one message", 'write raise ValueError(f"...")')
        message = self.message(node.exc.args[0]) if node.exc.args else ("the host function raised an exception",)
        self.block.append(Check(Const(False, BOOL), message))

    def visit_Assert(self, node: ast.Assert) -> None:
        self.check(
            self.condition(node.test), self.message(node.msg) if node.msg else (f"{ast.unparse(node.test)} does not hold",)
        )

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        if not isinstance(node.value, ast.Call):
            raise self.fail(node, "this has no effect")
        value = self.value(node.value)
        if value != NOTHING and not isinstance(value, Object):
            raise self.fail(node, "the result is not used")

    def visit_Pass(self, node: ast.Pass) -> None:
        return

    # -- calls --------------------------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Subscript):
            kernel = self.value(node.func.value)
            if isinstance(kernel, Object) and is_kernel(kernel.value):
                return self.launch(kernel.value, node.func.slice, node)
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
            raise self.fail(node, f"{function.__name__} is a kernel", "launch it: kernel[grid](...)")
        if self.is_ours(Object(function)):
            method = getattr(self, f"call_{getattr(function, '__name__', '')}", None)
            if method is not None:
                return self.call_bound(method, positional, keywords, node)
        if inspect.isfunction(function) and not self.is_ours(Object(function)) and function.__module__ not in ("math", "torch"):
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
        variable = self.variable(self.hint or "scratch", TENSOR)
        steps = None if strides is None else self.as_list(strides, node)
        self.block.append(Allocate(variable, self.as_list(shape, node), steps, kind, place, self.source.at(node)))
        return Ref(variable)

    def call_broadcast_strides(self, node: ast.Call, x: Value, shape: Value) -> Value:
        tensor = self.tensor(x, node, none_ok=True)
        held = self.let("strides", apply("broadcast_strides", tensor, self.as_list(shape, node)))
        if isinstance(shape, Tuple):
            return Tuple(tuple(apply("at", held, Const(index, INT), type=INT) for index in range(len(shape.items))))
        return held

    def call_collapse_rows(self, node: ast.Call, *tensors: Value, ndims: Value = NOTHING) -> Value:
        if not isinstance(ndims, Const) or ndims.type != INT or not 1 <= ndims.value <= 4:
            raise self.fail(node, "ndims is a number from 1 to 4", "write kp.collapse_rows(x, out, ndims=2)")
        if not tensors:
            raise self.fail(node, "collapse_rows takes at least one tensor")
        return self.rows(tensors, ndims.value, node)

    # -- launches -----------------------------------------------------------------------------------------------------

    def launch(self, kernel: Any, grid_node: ast.expr, node: ast.Call) -> Value:
        if self.in_loop:
            raise self.fail(node, "a launch inside a loop has no translation", "make the loop a dimension of the grid")
        arguments, options = self.bind(kernel, node)
        grid = self.value(grid_node)
        if isinstance(grid, Grid):
            names = self.names
            self.names = {**grid.names, grid.tree.args.args[0].arg: Meta()}
            grid = self.value(grid.tree.body)
            self.names = names
        dimensions = grid.items if isinstance(grid, Tuple) else (grid,)
        if not 1 <= len(dimensions) <= 3:
            raise self.fail(grid_node, f"a grid has one to three dimensions, not {len(dimensions)}")
        sizes = tuple(self.number(dimension, grid_node) for dimension in dimensions)
        function = jit_function(kernel)
        assert function is not None
        self.block.append(Launch(function, sizes, arguments, options, self.source.at(node), self.launches))
        self.launches += 1
        return NOTHING

    def bind(self, kernel: Any, node: ast.Call) -> tuple[dict[str, Expr], dict[str, Any]]:
        """Returns a launch's arguments by the kernel's parameter names, and its compile options."""
        parameters = {parameter.name: parameter for parameter in kernel_parameters(kernel)}
        given: dict[str, tuple[Value, ast.AST]] = {}
        options: dict[str, Any] = {}
        order = list(parameters)
        for argument in node.args:
            values = [self.value(argument)] if not isinstance(argument, ast.Starred) else None
            if values is None:
                unpacked = self.value(argument.value)  # type: ignore[attr-defined]
                if not isinstance(unpacked, Tuple):
                    raise self.fail(argument, "* needs a tuple whose length is known when building")
                values = list(unpacked.items)
            for value in values:
                if len(given) == len(order):
                    raise self.fail(argument, f"{kernel.__name__} takes {len(order)} arguments")
                given[order[len(given)]] = (value, argument)
        for keyword in node.keywords:
            value = self.value(keyword.value)
            if keyword.arg in parameters:
                if keyword.arg in given:
                    raise self.fail(keyword.value, f"{kernel.__name__} gets {keyword.arg!r} twice")
                given[keyword.arg] = (value, keyword.value)
            elif keyword.arg in OPTIONS:
                if not isinstance(value, Const):
                    raise self.fail(keyword.value, f"{keyword.arg} must be known when building", "set it in a kp.Config")
                options[keyword.arg] = value.value
            else:
                raise self.fail(keyword.value, f"{kernel.__name__} has no parameter {keyword.arg!r}")
        arguments: dict[str, Expr] = {}
        for parameter in parameters.values():
            if parameter.name in given:
                value, place = given[parameter.name]
                arguments[parameter.name] = self.argument(parameter.name, parameter.is_constexpr, value, place)
            elif not parameter.is_constexpr:
                if not parameter.has_default:
                    raise self.fail(node, f"{kernel.__name__} gets no {parameter.name!r}")
                arguments[parameter.name] = self.argument(parameter.name, False, self.constant(parameter.default, node), node)
        return arguments, options

    def argument(self, name: str, is_constexpr: bool, value: Value, node: ast.AST) -> Expr:
        if isinstance(value, Method):
            raise self.fail(node, f"{name} gets a method", "call it")
        expr = self.as_expr(value, node, name)
        if is_constexpr:
            if expr.type in (INT, BOOL, FLOAT, DTYPE, TEXT, NONE):
                return expr
            raise self.fail(node, f"constexpr {name} gets {expr.type}", "give a number, a bool, a dtype or a str")
        if expr.type.required == TENSOR or expr.type in (INT, FLOAT, BOOL, NONE):
            return expr
        if expr.type.optional:
            raise self.may_be_none(expr, node)
        raise self.fail(node, f"kernel argument {name} gets {expr.type}", "give a tensor or a number")


def _assigned(nodes: Sequence[ast.stmt]) -> set[str]:
    """Returns the names that statements assign."""
    return {
        part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
