"""JITCallable: a Python function whose text the compiler reads, or whose text what is compiled depends on."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
from typing import Any

from kernelpack.errors import SourceLocation
from kernelpack.kernel.source import FunctionSource, innermost, source_of, with_text

_OF_THE_PROCESS = ("__wrapped__", "__globals__", "_launcher", "source", "used_global_vals")
"""What of a function other processes cannot have."""


class JITCallable:
    """A Python function marked @jit or @constexpr_function. Its source is read when somebody asks for it."""

    __name__: str
    __qualname__: str

    def __init__(self, fn: Any) -> None:
        self.fn = innermost(fn)
        functools.update_wrapper(self, self.fn)
        self.__globals__ = self.fn.__globals__
        self.module = self.fn.__module__ or ""
        self.signature = inspect.signature(self.fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    @property
    def full_name(self) -> str:
        """The function's module and name, by which other processes know it."""
        return f"{self.module}.{self.__qualname__}"

    @property
    def location(self) -> SourceLocation:
        code = self.fn.__code__
        return SourceLocation(code.co_filename, code.co_firstlineno)

    @functools.cached_property
    def source(self) -> FunctionSource:
        return source_of(self.fn)

    @property
    def src(self) -> str:
        """The source text from `def` on, not indented."""
        return self.source.text

    @property
    def file(self) -> str:
        return self.fn.__code__.co_filename

    @functools.cached_property
    def starting_line_number(self) -> int:
        """The line of `def`, in the file. Code that makes functions of others' text may set it, as the next three."""
        return self.source.line

    @functools.cached_property
    def def_file_line_number(self) -> int:
        return self.source.line

    @functools.cached_property
    def def_file_col_number(self) -> int:
        """The column of `def`, from 1."""
        return self.source.tree.col_offset + 1

    @functools.cached_property
    def raw_src(self) -> list[str]:
        """The lines of the source, decorators included."""
        return inspect.getsourcelines(self.fn)[0]

    def _unsafe_update_src(self, new_src: str) -> None:
        """Gives the function another text, from `def` on; its parameters stay."""
        self.fn = with_text(self.fn, new_src)
        for name in (
            "source",
            "used_global_vals",
            "starting_line_number",
            "def_file_line_number",
            "def_file_col_number",
            "raw_src",
        ):
            vars(self).pop(name, None)
        importlib.import_module("kernelpack.runtime.launcher").Launcher.forget_all()  # its callers mean something else too

    def parse(self) -> ast.FunctionDef:
        """Returns the syntax tree, with the file's line and column numbers."""
        return self.source.tree

    @property
    def cache_key(self) -> str:
        """SHA-256 over what the function means: its source, the functions it calls, the constants it reads. No paths."""
        return str(_dependencies().cache_key_of(self))

    @functools.cached_property
    def used_global_vals(self) -> dict[tuple[str, int], tuple[Any, dict[str, Any]]]:
        """The constants that the function reads from outside: (value, globals) by (name, id of globals)."""
        found: dict[tuple[str, int], tuple[Any, dict[str, Any]]] = _dependencies().constants_of(self)
        return found

    def scope(self) -> dict[str, Any]:
        """Returns the names that the function sees from outside: module globals, and the enclosing functions' variables."""
        return dict(_dependencies().scope_of(self.fn))

    get_capture_scope = scope

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self.fn is not None:
            return self.__qualname__  # as functions are: by the module's name and its own
        # host code took the function away, as compile workers do: their modules exist nowhere else
        return object.__new__, (type(self),), {name: value for name, value in vars(self).items() if name not in _OF_THE_PROCESS}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.module}:{self.__qualname__})"


def _dependencies() -> Any:
    # late: it reads values of the language, functions among them
    return importlib.import_module("kernelpack.kernel.dependencies")
