"""A host function's syntax tree, with exact lines and columns, and the Python objects that its free names stand for."""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelpack.errors import CompilationError, HostFunctionError, SourceLocation
from kernelpack.kernel import source as python_source


@dataclass(frozen=True)
class HostSource:
    """A function's tree and names."""

    file: str
    tree: ast.FunctionDef
    names: Mapping[str, Any]

    def at(self, node: ast.AST) -> SourceLocation:
        """Returns where a node stands."""
        return SourceLocation(self.file, getattr(node, "lineno", self.tree.lineno), getattr(node, "col_offset", -1) + 1)

    def fail(self, node: ast.AST, message: str, cure: str | None = None) -> HostFunctionError:
        return HostFunctionError(message, location=self.at(node), cure=cure)


def source_of(function: Callable[..., Any]) -> HostSource:
    """Returns a function's source. Raises HostFunctionError where it has none, as in an interactive session."""
    if not inspect.isfunction(function):
        raise HostFunctionError(f"{function!r} is not a Python function", cure="put @kp.op(...) on a def")
    try:
        found = python_source.source_of(function)
    except CompilationError as error:
        raise HostFunctionError(error.message, location=error.location, cure=error.cure) from None
    names = {**vars(builtins), **function.__globals__, **inspect.getclosurevars(function).nonlocals}
    return HostSource(found.file, found.tree, names)
