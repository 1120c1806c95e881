"""Finds the source of a Python function: its syntax tree, with the file's own line and column numbers, and its text."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import linecache
import threading
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from kernelpack.errors import CompilationError, SourceLocation


@dataclass(frozen=True)
class FunctionSource:
    """Where a function stands. `text` starts at its `def`, without decorators, and is not indented."""

    file: str
    line: int
    tree: ast.FunctionDef
    text: str

    @property
    def def_file_lineno(self) -> int:
        return self.line


_GIVEN: weakref.WeakKeyDictionary[FunctionType, FunctionSource] = weakref.WeakKeyDictionary()
"""The sources of functions whose text was given: where their code says that it stands may be set, to the place of a template."""


def innermost(function: Any) -> FunctionType:
    """Returns the plain function inside of decorators that keep `__wrapped__` or `fn`. Raises CompilationError."""
    while not isinstance(function, FunctionType):
        inner = getattr(function, "fn", None) or getattr(function, "__wrapped__", None) or getattr(function, "__func__", None)
        if inner is None:
            raise CompilationError(f"{function!r} is not a Python function", cure="put @kernelpack.jit on a `def`")
        function = inner
    plain: FunctionType = inspect.unwrap(function)
    return plain


def last_word(annotation: str) -> str:
    """Returns the last name of an annotation's text: `constexpr` for `tl.constexpr`."""
    return annotation.rpartition(".")[2].strip("'\"")


def source_of(function: FunctionType) -> FunctionSource:
    """Returns a function's source. Raises CompilationError where there is none (exec, interactive input) or it has changed."""
    if function in _GIVEN:
        return _GIVEN[function]
    code = function.__code__
    here = SourceLocation(code.co_filename, code.co_firstlineno)
    lines = tuple(linecache.getlines(code.co_filename, function.__globals__))
    if not lines:
        raise CompilationError(
            f"the source of {function.__name__} cannot be read", location=here, cure="define kernels in a file"
        )
    tree = _find(lines, code, here)
    text = [
        line[tree.col_offset :] if line[: tree.col_offset].isspace() else line for line in lines[tree.lineno : tree.end_lineno]
    ]
    first = lines[tree.lineno - 1][tree.col_offset :]
    return FunctionSource(code.co_filename, tree.lineno, tree, first + "".join(text))


def with_text(function: FunctionType, text: str) -> FunctionType:
    """Returns a function that is called like another and sees the same globals and enclosing variables, with a text of its own: one
    `def`, from the first column on. Nothing of it is executed. Raises CompilationError where the text is something else."""
    file = f"<{function.__qualname__}, {hashlib.sha256(text.encode()).hexdigest()[:12]}>"
    lines = tuple(text.splitlines(keepends=True))
    linecache.cache[file] = (len(text), None, list(lines), file)
    defined = _functions(lines, file)
    if not defined:
        raise CompilationError(f"the new text of {function.__name__} has no `def`", location=SourceLocation(file, 1))
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    around = ast.parse(f"def around({', '.join(cells)}): pass").body[0]
    assert isinstance(around, ast.FunctionDef)
    around.body = [defined[0]]
    outer = _code_in(compile(ast.Module([around], []), file, "exec"), "around")
    code = _code_in(outer, defined[0].name)
    closure = tuple(cells[name] for name in code.co_freevars)
    result = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    functools.update_wrapper(result, function)
    del vars(result)["__wrapped__"]  # it does not stand for the first
    _GIVEN[result] = source_of(result)
    return result


def _code_in(code: CodeType, name: str) -> CodeType:
    return next(part for part in code.co_consts if isinstance(part, CodeType) and part.co_name == name)


def _find(lines: tuple[str, ...], code: CodeType, here: SourceLocation) -> ast.FunctionDef:
    for node in _functions(lines, here.file):
        # a code object's first line is that of the first decorator
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        if node.name == code.co_name and first == code.co_firstlineno:
            return node
    raise CompilationError(
        f"{code.co_name} was not found where it was defined: the file has changed since it was imported, or it is a lambda",
        location=here,
        cure="restart Python; kernels are written with `def`",
    )


_PARSING = threading.Lock()
"""CPython 3.11 counts how deep the trees are that all threads build in one number, and raises SystemError where two build theirs."""


def _functions(lines: tuple[str, ...], file: str) -> tuple[ast.FunctionDef, ...]:
    """Returns every function definition of a file, nested ones too."""
    with _PARSING:
        return _parsed(lines, file)


@functools.lru_cache(maxsize=64)
def _parsed(lines: tuple[str, ...], file: str) -> tuple[ast.FunctionDef, ...]:
    try:
        tree = ast.parse("".join(lines), file)
    except SyntaxError as problem:
        raise CompilationError(
            f"the file no longer parses: {problem.msg}", location=SourceLocation(file, problem.lineno or 1)
        ) from None
    return tuple(_definitions(tree.body))


def _definitions(statements: Iterable[ast.AST]) -> Iterator[ast.FunctionDef]:
    """Yields the functions that statements, and those inside of them, define. Expressions, which are most of a tree, define none."""
    for statement in statements:
        if isinstance(statement, ast.FunctionDef):
            yield statement
        for block in ("body", "handlers", "cases", "orelse", "finalbody"):
            yield from _definitions(getattr(statement, block, ()))


def location_of(node: ast.AST, function: FunctionSource) -> SourceLocation:
    """Returns where a syntax node of a function starts. Columns count characters, from 1; the tree counts bytes."""
    line = getattr(node, "lineno", 1)
    offset = getattr(node, "col_offset", 0)
    text = linecache.getline(function.file, line)
    column = len(text.encode()[:offset].decode(errors="ignore")) if text else offset
    within = f"{function.tree.name}, at {line - function.line + 1}:{column - function.tree.col_offset}"
    return SourceLocation(function.file, line, column + 1, within)
