"""Translates the launches of a host function: grid, arguments by parameter, compile options."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from kernelpack.kernel.arguments import number_types, part_names
from kernelpack.kernel.jit import KernelParam, jit_function
from kernelpack.opgen.host.calls import Calls
from kernelpack.opgen.host.ir import BOOL, DTYPE, FLOAT, INT, NONE, NOTHING, TENSOR, TEXT, Const, Expr, Launch, Parts
from kernelpack.opgen.host.values import Grid, Meta, Method, Object, Tuple, Value
from kernelpack.opgen.stated.kernels import autotuned_configs, is_kernel, kernel_parameters
from kernelpack.options import OPTION_NAMES


@dataclass
class Passed:
    """What a launch passes: see Launch."""

    parameters: list[KernelParam] = field(default_factory=list)
    parts: dict[str, Parts] = field(default_factory=dict)
    arguments: dict[str, Expr] = field(default_factory=dict)


class Launches(Calls):
    """`kernel[grid](...)`."""

    launches = 0
    axes: Collection[str] = ()

    def visit_Call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Subscript):
            kernel = self.value(node.func.value)
            if isinstance(kernel, Object) and is_kernel(kernel.value):
                return self.launch(kernel.value, node.func.slice, node)
            if isinstance(kernel, Object):
                kind = type(kernel.value).__name__
                raise self.fail(
                    node, f"{ast.unparse(node.func.value)} is a Python {kind}, no kernel", "launch what @kp.jit made"
                )
        return super().visit_Call(node)

    def launch(self, kernel: Any, grid_node: ast.expr, node: ast.Call) -> Value:
        if self.in_loop:
            raise self.fail(node, "a launch inside a loop has no translation", "make the loop a dimension of the grid")
        passed, options = self.bind(kernel, node)
        grid = self.value(grid_node)
        if isinstance(grid, Grid):
            names = self.names
            self.names = {**grid.names, grid.tree.args.args[0].arg: Meta()}
            grid = self.value(grid.tree.body)
            self.names = names
        dimensions = grid.items[:3] if isinstance(grid, Tuple) else (grid,)  # the rest counts for nothing, as in Triton
        if not dimensions:
            raise self.fail(grid_node, "a grid has one to three dimensions, not 0")
        sizes = tuple(self.number(dimension, grid_node) for dimension in dimensions)
        function = jit_function(kernel)
        assert function is not None
        place = self.source.at(node)
        self.block.append(
            Launch(
                function,
                sizes,
                tuple(passed.parameters),
                passed.parts,
                passed.arguments,
                options,
                place,
                self.launches,
                autotuned_configs(kernel),
            )
        )
        self.launches += 1
        return NOTHING

    def bind(self, kernel: Any, node: ast.Call) -> tuple[Passed, dict[str, Any]]:
        """Returns what a launch passes, and its compile options."""
        parameters = {parameter.name: parameter for parameter in kernel_parameters(kernel)}
        given: dict[str, tuple[Value, ast.AST]] = {}
        options: dict[str, Any] = {}
        order = list(parameters)
        for value, place in self.positional(node):
            if len(given) == len(order):
                raise self.fail(place, f"{kernel.__name__} takes {len(order)} arguments")
            given[order[len(given)]] = (value, place)
        for keyword in node.keywords:
            value = self.value(keyword.value)
            if keyword.arg is not None and (keyword.arg in parameters or keyword.arg in self.axes):
                if keyword.arg in given:
                    raise self.fail(keyword.value, f"{kernel.__name__} gets {keyword.arg!r} twice")
                given[keyword.arg] = (value, keyword.value)
            elif keyword.arg in OPTION_NAMES:  # not arguments of the kernel
                if not isinstance(value, Const):
                    raise self.fail(keyword.value, f"{keyword.arg} must be known when building", "set it in a kp.Config")
                options[keyword.arg] = value.value
            else:
                raise self.fail(keyword.value, f"{kernel.__name__} has no parameter {keyword.arg!r}")
        passed = Passed()
        for parameter in parameters.values():
            if parameter.name in given:
                value, place = given[parameter.name]
                passes = self.pass_on(passed, parameter, value, place)
            elif parameter.is_constexpr:
                passed.parameters.append(parameter)
                continue
            elif parameter.has_default:
                passes = self.pass_on(passed, parameter, self.constant(parameter.default, node), node)
            else:
                raise self.fail(node, f"{kernel.__name__} gets no {parameter.name!r}")
            if isinstance(passes, Parts):
                passed.parts[parameter.name] = passes
        for name, (value, place) in given.items():
            if name not in parameters:  # it chooses a config
                passed.arguments[name] = self.argument(name, True, value, place)
        return passed, options

    def pass_on(self, passed: Passed, parameter: KernelParam, value: Value, node: ast.AST) -> str | Parts:
        """Notes what a launch passes for a parameter, of a tuple for each of its parts. Returns the parameter's name, or its parts."""
        if isinstance(value, Tuple) and not parameter.is_constexpr:
            names = part_names(value.of, len(value.items))
            kinds = [None] * len(names) if value.of is None else number_types(value.of)
            entries = [
                self.pass_on(passed, replace(parameter, name=f"{parameter.name}_{name}", annotation=kind or ""), item, node)
                for name, kind, item in zip(names, kinds, value.items, strict=True)
            ]
            return Parts(value.of, tuple(entries))
        if parameter.name in passed.arguments:
            raise self.fail(node, f"a part of a tuple and a parameter are both called {parameter.name}", "rename one of them")
        passed.parameters.append(parameter)
        passed.arguments[parameter.name] = self.argument(parameter.name, parameter.is_constexpr, value, node)
        return parameter.name

    def positional(self, node: ast.Call) -> Iterator[tuple[Value, ast.AST]]:
        """Yields a call's arguments that are not named, with where they stand."""
        for argument in node.args:
            if not isinstance(argument, ast.Starred):
                yield self.value(argument), argument
                continue
            unpacked = self.value(argument.value)
            if not isinstance(unpacked, Tuple):
                raise self.fail(argument, "* needs a tuple whose length is known when building")
            for value in unpacked.items:
                yield value, argument

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
