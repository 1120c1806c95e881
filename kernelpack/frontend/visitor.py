"""The base of the visitors that turn a function's syntax into operations: dispatch, locations, refusals."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from kernelpack.errors import CompilationError, CompileTimeAssertionFailure, UnsupportedLanguageConstruct
from kernelpack.frontend import suggestions
from kernelpack.frontend.scope import Scope, describe_type, tensors_in, with_parts
from kernelpack.ir.core import Builder, Location, Value
from kernelpack.ir.locations import HOMES_OF_THE_LANGUAGE, is_of_language
from kernelpack.kernel.aggregates import user_aggregate
from kernelpack.kernel.source import location_of
from kernelpack.kernel.values import unwrap
from kernelpack.limits import check_nodes
from kernelpack.options import Options

if TYPE_CHECKING:
    from kernelpack.frontend.ast_to_ttir import ModuleGenerator
    from kernelpack.kernel.jit import JITFunction

# syntax outside the language: what it is called, and what to write instead
_REFUSED: dict[type[ast.AST], tuple[str, str | None]] = {
    ast.AsyncFor: ("async for", None),
    ast.AsyncFunctionDef: ("async def", None),
    ast.AsyncWith: ("async with", None),
    ast.Await: ("await", None),
    ast.Break: ("break", "put the condition into the loop: `while i < n and not done:`, or mask what comes after"),
    ast.ClassDef: ("class", None),
    ast.Continue: ("continue", "put the rest of the loop's body under an `if`"),
    ast.Delete: ("del", "leave it out: values have no lifetime"),
    ast.Dict: ("a dict", "use separate tl.constexpr variables"),
    ast.DictComp: ("a dict", "use separate tl.constexpr variables"),
    ast.GeneratorExp: ("a generator", "write a list comprehension, [f(x) for x in xs]"),
    ast.Global: ("global", "kernels cannot change globals: store through a pointer"),
    ast.Import: ("import", "import at the top of the file"),
    ast.ImportFrom: ("import", "import at the top of the file"),
    ast.Match: ("match", "use if and elif"),
    ast.Nonlocal: ("nonlocal", None),
    ast.Set: ("a set", "use a tuple"),
    ast.SetComp: ("a set", "use a tuple"),
    ast.Starred: ("*", "name the elements one by one"),
    ast.Try: ("try", "kernels cannot raise: test before, and mask"),
    ast.With: ("with", None),
    ast.Yield: ("yield", "return a tuple"),
    ast.YieldFrom: ("yield", "return a tuple"),
}


class Visitor:
    """Generates the body of one function into `builder`.

    `scope` holds what names stand for at this point, `outer` what they stand for outside the function; between them come the
    names of `enclosing`, the visitor of the function that a lambda or a nested function stands in. `call_site` is where the
    function is called from when its body is generated in place; `frame` is the IR function that it becomes part of.
    """

    def __init__(
        self, module: ModuleGenerator, function: JITFunction, builder: Builder, scope: Scope, call_site: Location | None = None
    ) -> None:
        self.module = module
        self.function = function
        self.builder = builder
        self.scope = scope
        self.outer = function.scope()
        self.call_site = call_site
        self.enclosing: Visitor | None = None
        self.frame: object = self
        self.unused_call: ast.expr | None = None  # a call whose value nobody takes
        self.loop_depth = 0
        self.declared: set[str] = set()  # variables annotated as tl.constexpr before they are assigned
        self.assigned_at: dict[str, ast.AST] = {}
        self.read: set[tuple[str, int]] = set()  # (name, identity of its value)

    @property
    def options(self) -> Options:
        """How the kernel is compiled."""
        return self.module.options

    @property
    def debug(self) -> bool:
        """Whether run-time assertions are compiled."""
        return self.options.debug or self.function.debug

    @property
    def checks_overflow(self) -> bool:
        """Whether integers are asserted to fit their type: not in the language's own functions, some of which count modulo 2^32."""
        return self.debug and self.options.sanitize_overflow and not is_of_language(self.function.source.file)

    def promise(self, value: Value, attribute: str, promised: tuple[int, ...]) -> None:
        """Notes a promise on the operation that makes a value. What a loop carries has none: those that make it take it over
        when the loop ends."""
        if value.defining_op is not None:
            value.defining_op.attributes[attribute] = promised
        else:
            self.module.promised.setdefault(value, {})[attribute] = promised

    @property
    def num_warps(self) -> int | None:
        """How many warps the kernel is compiled for; None where that is not decided yet."""
        return None if self.module.any_warps else self.options.num_warps

    def visit(self, node: ast.AST) -> Any:
        """Returns the value of an expression, or carries out a statement. Operations get the node's location."""
        handler: Callable[[Any], Any] | None = getattr(self, f"visit_{type(node).__name__}", None)
        with self.at(node):
            self.module.nodes += 1
            check_nodes(self.module.nodes)
            if handler is None:
                self.refuse(node)
            return handler(node)

    @contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """Gives operations, and errors that have none, the location of a node."""
        outer = self.builder.location
        self.builder.location = self.location(node)
        try:
            yield
        except CompilationError as problem:
            if problem.location is None:
                problem.location = self.location(node).source
                if problem.__cause__ is None and not isinstance(
                    problem, CompileTimeAssertionFailure
                ):  # as in Triton, where the reason alone is the cause of an error with a place
                    problem.__cause__ = ValueError(problem.message)
            raise
        finally:
            self.builder.location = outer

    def location(self, node: ast.AST) -> Location:
        return Location(location_of(node, self.function.source), self.call_site)

    @property
    def line(self) -> int:
        """The line of the file that is being compiled."""
        source = self.builder.location.source
        return 0 if source is None else source.line

    def refuse(self, node: ast.AST) -> NoReturn:
        """Refuses syntax that the language does not have."""
        name, cure = _REFUSED.get(type(node), (f"this syntax ({type(node).__name__})", None))
        raise UnsupportedLanguageConstruct(f"{name} is not part of the kernel language", cure=cure)

    def fold(self, node: ast.AST, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Returns what Python makes of compile-time values."""
        for value in (*args, *kwargs.values()):
            if not isinstance(value, user_aggregate) and next(tensors_in(value), None) is not None:
                raise CompilationError(
                    f"`{ast.unparse(node)}` needs compile-time values, got {describe_type(value)}",
                    cure=suggestions.for_foreign(function)
                    or "only operators, tl functions and @jit functions take run-time values",
                )
        with failing(node, " fails at compile time"):
            return as_value(function(*args, **kwargs))


@contextmanager
def failing(node: ast.AST, how: str = "", cure: str | None = None) -> Iterator[None]:
    """Makes an error of Python's, in what runs while compiling, one of compiling that names the expression."""
    try:
        yield
    except CompilationError:
        raise
    except Exception as problem:
        raise CompilationError(f"`{ast.unparse(node)}`{how}: {type(problem).__name__}: {problem}", cure=cure) from problem


ENDLESS = "a function that calls itself must shrink a compile-time value or a shape, down to a case in which it does not"


@contextmanager
def called_from(caller: Visitor, name: str, module: str = "") -> Iterator[None]:
    """Adds the call of a function to an error's story. An error inside the language's own functions is the caller's."""
    site = caller.builder.location.source
    try:
        yield
    except CompilationError as problem:
        if module.startswith(HOMES_OF_THE_LANGUAGE):
            problem.location = site
        elif site is not None:
            problem.call_sites = (*problem.call_sites, site)
        raise
    except RecursionError:  # here, where some of the stack is free again
        raise CompilationError(f"{name} is called inside too many other calls", location=site, cure=ENDLESS) from None


def as_value(value: Any) -> Any:
    """Returns what a Python function gave as a value of the language: no constexpr, no lists."""
    value = unwrap(value)
    if isinstance(value, list):
        return tuple(as_value(entry) for entry in value)
    return with_parts(value, [as_value(entry) for entry in value]) if isinstance(value, tuple) else value


def bind(signature: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns arguments by parameter, defaults included. Raises CompilationError where they do not fit."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as problem:
        bare = signature.replace(
            parameters=[parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()],
            return_annotation=signature.empty,
        )
        raise CompilationError(f"{name}(): {problem}", cure=f"its signature is {name}{bare}") from None
    bound.apply_defaults()
    return {parameter: unwrap(value) for parameter, value in bound.arguments.items()}
