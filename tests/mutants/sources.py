"""Takes a kernel out of a test file, with the functions and constants that it uses: a module that stands for itself."""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
_HEAD = "import kernelpack as kp\nimport kernelpack.language as tl"


@functools.cache
def kernel_module(file: str, name: str) -> str:
    """Returns the text of a kernel's module; the kernel comes last. `name` is dotted where it stands inside of a test."""
    scopes, found = [_parsed(file)], None
    for part in name.split("."):
        found = _defined(scopes[-1], part)
        scopes.append(found.body)
    assert isinstance(found, ast.FunctionDef)
    needed: list[ast.stmt] = []
    _add(found, scopes[:-1], needed)
    return ast.unparse(ast.parse("\n\n".join([_HEAD, *map(ast.unparse, needed)]))) + "\n"


@functools.cache
def _parsed(file: str) -> list[ast.stmt]:
    return ast.parse((ROOT / "tests" / file).read_text()).body


def _defined(scope: Sequence[ast.stmt], name: str) -> ast.FunctionDef:
    return next(statement for statement in scope if isinstance(statement, ast.FunctionDef) and statement.name == name)


def _add(statement: ast.stmt, scopes: Sequence[Sequence[ast.stmt]], needed: list[ast.stmt]) -> None:
    """Adds a statement after those that define the names in it."""
    for name in dict.fromkeys(node.id for node in ast.walk(statement) if isinstance(node, ast.Name)):
        for other in (other for scope in scopes for other in scope):
            if name in _names(other) and other is not statement and other not in needed:
                _add(other, scopes, needed)
    needed.append(statement)


def _names(statement: ast.stmt) -> set[str]:
    """Returns what a statement defines for kernels: functions of the language, and constants."""
    if isinstance(statement, ast.FunctionDef):
        return {statement.name} if any("jit" in ast.unparse(each) for each in statement.decorator_list) else set()
    if isinstance(statement, ast.AnnAssign):
        return {statement.target.id} if isinstance(statement.target, ast.Name) else set()
    return set()
