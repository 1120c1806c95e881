"""Functions that stand inside kernels: lambdas, nested functions, and list comprehensions, all generated where they are used."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from kernelpack.errors import CompilationError
from kernelpack.frontend.scope import describe_type, tensors_in
from kernelpack.frontend.visitor import Visitor, called_from
from kernelpack.language import core

if TYPE_CHECKING:
    from kernelpack.frontend.control_flow import ControlFlow


class LocalFunction:
    """A lambda or a nested function. Its body sees the variables of `home`, the visitor of the function that it stands in."""

    def __init__(self, name: str, node: ast.Lambda | ast.FunctionDef, signature: inspect.Signature, home: Visitor) -> None:
        self.__name__ = name
        self.node = node
        self.signature = signature
        self.home = home

    def __repr__(self) -> str:
        return f"the function {self.__name__}"


class LocalFunctions(Visitor):
    """Visits what makes functions, and comprehensions."""

    def visit_Lambda(self, node: ast.Lambda) -> LocalFunction:
        return LocalFunction("lambda", node, self.signature_of(node.args), self)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        function = LocalFunction(node.name, node, self.signature_of(node.args), self)
        self.scope[node.name] = function
        self.assigned_at[node.name] = node

    def signature_of(self, arguments: ast.arguments) -> inspect.Signature:
        """Returns the signature that parameters make, defaults evaluated here."""
        kinds = inspect.Parameter
        positional = [*arguments.posonlyargs, *arguments.args]
        defaults = dict(zip(reversed(positional), map(self.visit, reversed(arguments.defaults)), strict=False))
        defaults |= {
            parameter: self.visit(default)
            for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if default is not None
        }

        def made(parameter: ast.arg, kind: Any) -> inspect.Parameter:
            return kinds(parameter.arg, kind, default=defaults.get(parameter, kinds.empty))

        parameters = [made(parameter, kinds.POSITIONAL_ONLY) for parameter in arguments.posonlyargs]
        parameters += [made(parameter, kinds.POSITIONAL_OR_KEYWORD) for parameter in arguments.args]
        if arguments.vararg is not None:
            parameters.append(made(arguments.vararg, kinds.VAR_POSITIONAL))
        parameters += [made(parameter, kinds.KEYWORD_ONLY) for parameter in arguments.kwonlyargs]
        if arguments.kwarg is not None:
            raise CompilationError("** is not part of the kernel language", cure="name the parameters one by one")
        return inspect.Signature(parameters)

    def captured(self, name: str) -> tuple[bool, Any]:
        """Returns whether a name belongs to an enclosing function, and its value there now."""
        outside = self.enclosing
        while outside is not None:
            if name in outside.scope:
                value = outside.scope[name]
                if outside.frame is not self.frame and any(True for _ in tensors_in(value)):
                    raise CompilationError(
                        f"{name} is a run-time value of another function", cure="hand it over as an argument of the function"
                    )
                return True, value
            outside = outside.enclosing
        return False, None

    # ---- comprehensions ----

    def visit_ListComp(self, node: ast.ListComp) -> tuple[Any, ...]:
        """A comprehension over tuples and compile-time ranges is a tuple; its variables are its own."""
        outer, self.scope = self.scope, dict(self.scope)
        try:
            return tuple(self.comprehend(node.elt, node.generators))
        finally:
            self.scope = outer

    def comprehend(self, element: ast.expr, generators: Sequence[ast.comprehension]) -> Iterator[Any]:
        if not generators:
            yield self.visit(element)
            return
        first, *others = generators
        values = self.elements_of(first.iter)
        with self.copied(values):
            for value in values:
                self.bind_target(first.target, value)
                conditions = [self.visit(test) for test in first.ifs]
                if any(True for _ in tensors_in(tuple(conditions))):
                    raise CompilationError("the conditions of a comprehension are compile-time values", cure="use tl.where")
                if all(conditions):
                    yield from self.comprehend(element, others)

    def copied(self, values: core.static_range | tuple[Any, ...]) -> AbstractContextManager[None]:
        """Context: what is compiled inside is compiled for each of the values."""
        return self.module.copied(values.trips if isinstance(values, core.static_range) else len(values))

    def elements_of(self, node: ast.expr) -> core.static_range | tuple[Any, ...]:
        """Returns what a compile-time loop runs over."""
        values = self.visit(node)
        if isinstance(values, (tuple, core.static_range)):
            return values
        if isinstance(values, core.range) and not any(True for _ in tensors_in((values.start, values.end, values.step))):
            return core.static_range(values.start, values.end, values.step)
        raise CompilationError(
            f"a comprehension runs over tuples and compile-time ranges, not {describe_type(values)}", cure="use a `for` loop"
        )

    def bind_target(self, target: ast.expr, value: Any) -> None:
        """Gives compile-time loop variables their values, without making numbers run-time values."""
        if isinstance(target, ast.Name):
            self.scope[target.id] = value
            self.assigned_at[target.id] = target
        elif isinstance(target, (ast.Tuple, ast.List)):
            if not isinstance(value, tuple) or len(value) != len(target.elts):
                raise CompilationError(f"{describe_type(value)} cannot be unpacked into {len(target.elts)} variables")
            for entry, part in zip(target.elts, value, strict=True):
                self.bind_target(entry, part)
        else:
            raise CompilationError(f"`{ast.unparse(target)}` cannot be a loop's variable")


def generate(caller: ControlFlow, function: LocalFunction, arguments: dict[str, Any]) -> Any:
    """Generates the body of a local function where the caller is, and returns what it gives."""
    visitor = type(caller)(caller.module, function.home.function, caller.builder, arguments, caller.builder.location)
    visitor.enclosing, visitor.frame = function.home, caller.frame
    with called_from(caller, function.__name__):
        if isinstance(function.node, ast.Lambda):
            return visitor.visit(function.node.body)
        return visitor.visit_body(function.node.body, last=True).value
