"""Translates a host function, statement by statement, into the host IR. What has no translation is an error at its line."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from kernelpack.errors import HostFunctionError
from kernelpack.opgen.host.ir import (
    BOOL,
    DEVICE,
    DTYPE,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    NOTHING,
    TENSOR,
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
from kernelpack.opgen.host.launches import Launches
from kernelpack.opgen.host.ops import apply
from kernelpack.opgen.host.outputs import assign_outputs
from kernelpack.opgen.host.source import source_of
from kernelpack.opgen.host.values import Grid, Method, Object, Tuple, Value
from kernelpack.opgen.stated.schema import Argument, Schema

_RESERVED = [
    "alignas", "alignof", "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "const",
    "constexpr", "continue", "decltype", "default", "delete", "do", "double", "else", "enum", "explicit", "export",
    "extern", "false", "float", "for", "friend", "goto", "if", "inline", "int", "int64_t", "long", "mutable",
    "namespace", "new", "noexcept", "not", "nullptr", "operator", "or", "private", "protected", "public", "register",
    "return", "short", "signed", "sizeof", "static", "struct", "switch", "template", "this", "throw", "true", "try",
    "typedef", "typename", "union", "unsigned", "using", "virtual", "void", "volatile", "while", "xor", "call",
    "facts", "kp", "op_", "point", "slots", "std", "torch", "variant",
]  # fmt: skip
"""Names that variables of the translation cannot have: C++ keywords, and what generated code uses."""
_ARGUMENT_TYPES = {
    "Tensor": TENSOR,
    "int": INT,
    "SymInt": INT,
    "float": FLOAT,
    "bool": BOOL,
    "ScalarType": DTYPE,
    "Device": DEVICE,
}


def translate(function: Callable[..., Any], schema: Schema, axes: Collection[str] = ()) -> HostFunction:
    """Returns a host function as host IR. Launches may pass values of `axes` that kernels have no parameter for. Raises
    HostFunctionError."""
    source = source_of(function)
    none = inspect.Parameter.empty
    parameters = [str(one.replace(default=none, annotation=none)) for one in inspect.signature(function).parameters.values()]
    expected = [argument.name for argument in schema.arguments]
    if parameters != expected:
        raise HostFunctionError(
            f"{schema.name} takes ({', '.join(parameters)}), its schema ({', '.join(expected)})",
            location=source.at(source.tree),
            cure="give the host function the schema's arguments, in the schema's order",
        )
    translator = _Translator(source, dict.fromkeys(_RESERVED, 1))
    translator.axes = axes
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


class _Translator(Launches):
    """Turns statements into those of the host IR."""

    returns: list[HostType]

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
        self.assigned = target.id if isinstance(target, ast.Name) else ""
        value = self.value(node.value)
        self.assigned = ""
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
        ends = returns_always(tuple(then.block))
        if ends or returns_always(
            tuple(orelse.block)
        ):  # what follows sees the other branch's variables: it is no block of its own
            ended, other = (then, orelse) if ends else (orelse, then)
            self.block.append(If(condition if ends else apply("not", condition), tuple(ended.block)))
            self.block.extend(other.block)
            self.names = other.names
            return
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
            merged = tuple(self.merge(f"{name}_{index}", x, y, then, orelse, node) for index, (x, y) in pairs)
            return Tuple(merged, a.of if a.of is b.of else None)
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


def _assigned(nodes: Sequence[ast.stmt]) -> set[str]:
    """Returns the names that statements assign."""
    return {
        part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
