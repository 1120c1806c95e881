"""What a kernel's meaning depends on besides its own text, and the cache key that covers all of it."""

from __future__ import annotations

import ast
import enum
import functools
import hashlib
import inspect
import linecache
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from kernelpack.ir.locations import HOMES_OF_THE_LANGUAGE, is_of_language, relative_name
from kernelpack.kernel.callables import JITCallable
from kernelpack.kernel.jit import JITFunction
from kernelpack.kernel.source import FunctionSource, innermost, source_of
from kernelpack.kernel.types import dtype
from kernelpack.kernel.values import constexpr, is_constexpr_function, unwrap
from kernelpack.options import Options

_CONSTANT = (dtype, bool, int, float, str, tuple, list, dict, enum.Enum, type(None))


class _Reached(NamedTuple):
    """A function, its source, and what it sees from outside, by name: what its text mentions, and the defaults of its parameters."""

    function: Any
    source: FunctionSource
    outside: list[tuple[str, Any]]


def cache_key_of(function: JITCallable) -> str:
    """Returns the SHA-256, in hexadecimal, over a function's text, those of the functions it can reach, and the constants
    they read. Equal text in another file has the same key."""
    digest = hashlib.sha256()
    reached = _reached(function)
    for line in sorted(_description(plain, reached) for plain in reached):
        digest.update(line.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def lines_of(function: JITCallable) -> str:
    """Returns where a function, and those that it can reach, stand."""
    sources = [each.source for each in _reached(function).values()]
    return " ".join(sorted({f"{relative_name(each.file)}:{each.line}" for each in sources if not is_of_language(each.file)}))


def decisive_lines(function: JITCallable, line_information: bool, options: Options) -> str:
    """Returns `lines_of` a function where its image depends on them: it has line information, or messages of assertions or checks."""
    says = (
        options.debug or options.checked or any(getattr(each.function, "debug", False) for each in _reached(function).values())
    )
    return lines_of(function) if line_information or says else ""


def _reached(function: Any) -> dict[FunctionType, _Reached]:
    """Returns a function and those that it can reach, by the plain function of each."""
    found: dict[FunctionType, _Reached] = {}
    waiting = [function]
    while waiting:
        function = waiting.pop()
        plain = innermost(function)
        if plain not in found:
            source = source_of(plain)
            parameters = inspect.signature(plain).parameters.values()
            defaults = [(param.name, param.default) for param in parameters if param.default is not param.empty]
            found[plain] = _Reached(function, source, [*_references(source.tree, scope_of(plain)), *defaults])
            waiting += [called for _, value in found[plain].outside for called in functions_in(value, function)]
    return found


def _description(plain: FunctionType, reached: Mapping[FunctionType, _Reached]) -> str:
    """Returns a function's text with what the names in it stand for."""
    function, source, outside = reached[plain]
    options = f"noinline={function.noinline}" if isinstance(function, JITFunction) else "compile time"
    seen = set()
    for name, value in outside:
        for called in map(innermost, functions_in(value, function)):
            seen.add(f"{name} is {called.__qualname__}: {_text_hash(reached[called].source)}")
        for part in map(unwrap, _parts(value)):
            if isinstance(part, _CONSTANT):
                seen.add(f"{name} is {part!r}")
            elif isinstance(function, JITFunction) and _is_plain(part) and not _has_text(part):
                seen.add(f"{name} is {_instructions(part.__code__)}")
    return "\n".join([plain.__qualname__, options, source.text, *sorted(seen)])


def _instructions(code: CodeType) -> str:
    """Returns what a function without a text does, by this version of Python."""
    constants = [_instructions(part) if isinstance(part, CodeType) else repr(part) for part in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def _parts(value: Any) -> Iterator[Any]:
    """Yields a value, constexpr or not, and what it holds."""
    yield value
    value = unwrap(value)
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ():
        yield from _parts(part)


class Binding(NamedTuple):
    """A name that a function reads from outside, what it stood for, and the namespace, class or cell that holds it."""

    look_up: Callable[[str], Any]
    name: str
    value: Any
    place: Any


def bindings_of(functions: Iterable[Any]) -> list[Binding]:
    """Returns the names that functions, and those that they can reach, read from outside, the language's own left out."""
    found: dict[tuple[int, str], Binding] = {}
    reached = list(functions)
    done: set[int] = set()
    while reached:
        function = reached.pop()
        plain = innermost(function)
        if id(plain) in done or (plain.__module__ or "").startswith(HOMES_OF_THE_LANGUAGE):
            continue
        done.add(id(plain))
        scope = scope_of(plain)
        for words in _mentions(source_of(plain).tree):
            binding = _binding(words, plain, scope)
            if binding is not None:
                found.setdefault((id(binding.place), binding.name), binding)
                reached += functions_in(binding.value, function)
    return list(found.values())


def functions_in(value: Any, caller: Any = None) -> Iterator[Any]:
    """Yields the functions that a caller calls among a value, constexpr or not, and what it holds: kernels and what runs at compile
    time call plain functions too, of which those of other packages are followed no further than one call from a kernel."""
    for part in map(_plain_of_method, map(unwrap, _parts(value))):
        if isinstance(part, JITCallable) or is_constexpr_function(part) or _is_helper(part, caller):
            yield part


def _plain_of_method(value: Any) -> Any:
    return value.__func__ if isinstance(value, (MethodType, classmethod, staticmethod)) else value


def _is_helper(value: Any, caller: Any) -> bool:
    """Whether a value is a plain function with a text, which a caller may call: a kernel of any package, others of their own."""
    if not _is_plain(value) or caller is None or not _has_text(value):
        return False
    return isinstance(caller, JITFunction) or _package_of(value) == _package_of(caller)


def _is_plain(value: Any) -> bool:
    """Whether a value is a plain function, not one of this package, whose text every key covers."""
    return isinstance(value, FunctionType) and _package_of(value) != __name__.partition(".")[0]


def _has_text(function: FunctionType) -> bool:
    return function.__name__ != "<lambda>" and bool(linecache.getlines(function.__code__.co_filename))


def _package_of(function: Any) -> str:
    return (function.__module__ or "").partition(".")[0]


def watched_by(functions: Iterable[Any]) -> list[Binding]:
    """Returns the names that functions read from outside, and the values of constexprs among them, which may be set: while all stand
    for the same, so do cache keys, which take a thousand times longer to make than they take to look up."""
    found = bindings_of(functions)
    held = {id(part): part for binding in found for part in _parts(binding.value) if isinstance(part, constexpr)}
    return found + [Binding(vars(part).get, "value", part.value, part) for part in held.values()]


def constants_of(function: JITCallable) -> dict[tuple[str, int], tuple[Any, dict[str, Any]]]:
    """Returns the constants that a function, and those that it can reach, read from namespaces, as Triton notes them: the value, and
    the namespace, by name and the id of this."""
    return {
        (name, id(place)): (value, place)
        for _, name, value, place in bindings_of([function])
        if isinstance(place, dict) and isinstance(unwrap(value), _CONSTANT)
    }


def _binding(words: Words, function: FunctionType, scope: dict[str, Any]) -> Binding | None:
    """Returns what a name of a function's scope stands for, or an attribute of a module or a class that is not the language's."""
    *outer, name = words
    if not outer:
        cell = _cells(function).get(name)
        if cell is not None:
            return Binding(functools.partial(_contents, cell), name, _contents(cell, name), cell)
        names = function.__globals__
        return Binding(names.get, name, names[name], names) if name in names else None
    place = unwrap(_resolve(tuple(outer), scope))
    if isinstance(place, type) and hasattr(place, name):
        value = getattr(place, name)
        if value is getattr(place, name):
            return Binding(functools.partial(getattr, place), name, value, place)
        look_up = functools.partial(inspect.getattr_static, place)  # a bound method, which is another one each time
        return Binding(look_up, name, look_up(name), place)
    if not isinstance(place, ModuleType) or place.__name__.startswith(HOMES_OF_THE_LANGUAGE) or not hasattr(place, name):
        return None
    return Binding(vars(place).get, name, vars(place).get(name), vars(place))


def scope_of(function: FunctionType) -> dict[str, Any]:
    """Returns the names that a function sees from outside: module globals, and the enclosing functions' variables that are assigned."""
    contents = {name: _contents(cell, name) for name, cell in _cells(function).items()}
    scope = {**function.__globals__, **contents}
    return {name: value for name, value in scope.items() if value is not _NOTHING}


def _cells(function: FunctionType) -> dict[str, CellType]:
    return dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))


def _contents(cell: CellType, _: str) -> Any:
    """Returns what a variable of an enclosing function holds, _NOTHING while it is not assigned."""
    try:
        return cell.cell_contents
    except ValueError:
        return _NOTHING


def _text_hash(source: FunctionSource) -> str:
    return hashlib.sha256(source.text.encode()).hexdigest()


def _references(tree: ast.FunctionDef, scope: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields (dotted name, value) for every name from `scope`, and attribute of a module or class, that the function's text mentions."""
    for words in _mentions(tree):
        value = _resolve(words, scope)
        if value is not _NOTHING and not isinstance(value, ModuleType):
            yield ".".join(words), value


Words = tuple[str, ...]
_NOTHING = object()


@functools.cache  # for as long as the file's trees are kept, and far quicker than another walk
def _mentions(tree: ast.FunctionDef) -> tuple[Words, ...]:
    """Returns the names, and the attributes of names, that a function's text mentions and does not define: `tl.exp` is
    `("tl",)` and `("tl", "exp")`. Decorators are not its text: the configs that they search may depend on the machine."""
    parts = [tree.args, *tree.body, *([tree.returns] if tree.returns is not None else [])]
    nodes = [node for part in parts for node in ast.walk(part)]
    local = {node.arg for node in ast.walk(tree.args) if isinstance(node, ast.arg)}
    local |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    found = map(_words, nodes)
    return tuple(dict.fromkeys(words for words in found if words and words[0] not in local))


def _words(node: ast.AST) -> Words:
    """Returns a name, or a name's attribute, word by word; nothing for other syntax."""
    if isinstance(node, ast.Name):
        return (node.id,)
    outer = _words(node.value) if isinstance(node, ast.Attribute) else ()
    return (*outer, node.attr) if isinstance(node, ast.Attribute) and outer else ()


def _resolve(words: Words, scope: dict[str, Any]) -> Any:
    """Returns what a name, or an attribute of a module or of a class that is not the language's, stands for; _NOTHING where it is neither."""
    value = scope.get(words[0], _NOTHING)
    for word in words[1:]:
        value = unwrap(value)
        outer = isinstance(value, ModuleType) or (
            isinstance(value, type) and not value.__module__.startswith(HOMES_OF_THE_LANGUAGE)
        )
        value = getattr(value, word, _NOTHING) if outer else _NOTHING
    return value
