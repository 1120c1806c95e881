"""Op schemas: parsed, and checked for everything that torch would refuse, abort on, or fail at when the op is called."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernelpack.errors import SchemaError, SourceLocation

Default = bool | int | float | tuple[bool | int | float, ...] | None


@dataclass(frozen=True)
class SchemaType:
    """A type an op argument or result can have. `text` is how schemas spell it, without `?`, `[]` and alias marks."""

    text: str
    optional: bool = False
    is_list: bool = False
    length: int | None = None

    def __str__(self) -> str:
        brackets = f"[{'' if self.length is None else self.length}]" if self.is_list else ""
        return f"{self.text}{brackets}{'?' if self.optional else ''}"


@dataclass(frozen=True)
class Argument:
    """An op argument. `alias` is the letter of `Tensor(a!)`: the op writes to the tensor."""

    name: str
    type: SchemaType
    keyword_only: bool = False
    has_default: bool = False
    default: Default = None
    alias: str = ""

    @property
    def mutated(self) -> bool:
        return bool(self.alias)

    @property
    def is_tensor(self) -> bool:
        return self.type.text == "Tensor"

    def __str__(self) -> str:
        kind = str(self.type)
        if self.alias:
            kind = kind.replace("Tensor", f"Tensor({self.alias}!)", 1)
        return f"{kind} {self.name}{'=' + _default_text(self.default) if self.has_default else ''}"


@dataclass(frozen=True)
class Return:
    """An op result; `name` is "" where the schema gives none."""

    type: SchemaType
    name: str = ""

    def __str__(self) -> str:
        return f"{self.type}{' ' + self.name if self.name else ''}"


@dataclass(frozen=True)
class Schema:
    """A parsed schema. `str()` gives the text that torch is given."""

    name: str
    arguments: tuple[Argument, ...]
    returns: tuple[Return, ...]
    overload: str = ""

    def __str__(self) -> str:
        parts: list[str] = []
        for index, argument in enumerate(self.arguments):
            if argument.keyword_only and (index == 0 or not self.arguments[index - 1].keyword_only):
                parts.append("*")
            parts.append(str(argument))
        results = ", ".join(map(str, self.returns))
        if len(self.returns) != 1 or self.returns[0].name:
            results = f"({results})"
        overload = f".{self.overload}" if self.overload else ""
        return f"{self.name}{overload}({', '.join(parts)}) -> {results}"

    @property
    def tensors(self) -> tuple[Argument, ...]:
        return tuple(argument for argument in self.arguments if argument.is_tensor)

    def argument(self, name: str) -> Argument:
        """Returns the argument of a name. Raises KeyError for a name that none has."""
        for argument in self.arguments:
            if argument.name == name:
                return argument
        raise KeyError(name)

    @property
    def writes(self) -> bool:
        """Whether the op writes to an argument."""
        return any(argument.mutated for argument in self.arguments)

    def out_variant(self) -> Schema | None:
        """Returns the schema of the `.out` overload, which writes the results into given tensors and returns nothing.

        None for an op that returns no tensor, or also returns a number: torch.compile cannot call an op that mutates
        and returns numbers, nor one that returns a tensor which it was given (docs/decisions.md).
        """
        if not self.returns or any(result.type.text != "Tensor" for result in self.returns):
            return None
        taken = {argument.name for argument in self.arguments}
        outs: list[Argument] = []
        letters = iter("abcdefghijklmnopqrstuvwxyz")
        used = {argument.alias for argument in self.arguments}
        for index, result in enumerate(self.returns):
            name = result.name or ("out" if len(self.returns) == 1 else f"out{index}")
            while name in taken:
                name += "_out"
            taken.add(name)
            letter = next(letter for letter in letters if letter not in used)
            outs.append(Argument(name, SchemaType("Tensor"), keyword_only=True, alias=letter))
        return replace(self, overload="out", arguments=(*self.arguments, *outs), returns=())


def _default_text(value: Default) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_default_text(entry) for entry in value) + "]"
    return repr(value)


ARGUMENT_TYPES = ("Tensor", "int", "SymInt", "float", "bool", "ScalarType", "Device")
"""What a host function can take. Lists exist of int, SymInt, float and bool."""
LIST_ELEMENTS = ("int", "SymInt", "float", "bool")
RETURN_TYPES = ("Tensor", "int", "SymInt", "float", "bool")

_CURES = {
    "str": "use an int argument and an enum.IntEnum in Python: str arguments leak memory in torch's stable ABI",
    "Scalar": "use float, or int: torch's stable ABI cannot pass a Scalar",
    "number": "use float, or int: torch's stable ABI cannot pass a Scalar",
    "complex": "pass the real and the imaginary part as two floats: torch's stable ABI cannot pass complex numbers",
    "Dict": "pass the values as arguments of their own: torch's stable ABI cannot pass a Dict",
    "Stream": "leave it out: ops launch on torch's current stream",
    "Storage": "take a Tensor: torch's stable ABI cannot pass a Storage",
    "Any": "name the type: torch's stable ABI cannot pass Any",
    "Generator": "take the seed and the offset as ints",
    "Layout": "leave it out: kernels read strided tensors",
    "MemoryFormat": "take strides, or an int that stands for the format",
}
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*)|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<punctuation>->|[().,*=!?\[\]|:'\"]))",
    re.ASCII,
)


class _Parser:
    def __init__(self, text: str, location: SourceLocation | None) -> None:
        self.text = text
        self.location = location
        self.position = 0

    def fail(self, message: str, cure: str | None = None, position: int | None = None) -> SchemaError:
        """Returns the error, with the place in the schema marked."""
        at = self.position if position is None else position
        marked = f"{self.text}\n    {' ' * at}^"
        return SchemaError(f"{message}\n    {marked}", location=self.location, cure=cure)

    def peek(self) -> str:
        """Returns the next token without taking it; "" at the end."""
        match = _TOKEN.match(self.text, self.position)
        if match is None:
            if self.text[self.position :].strip():
                raise self.fail(f"unexpected character {self.text[self.position :].strip()[0]!r} in the schema")
            return ""
        return match[0].strip()

    def take(self) -> str:
        token = self.peek()
        match = _TOKEN.match(self.text, self.position)
        if match is not None:
            self.position = match.end()
        return token

    def accept(self, token: str) -> bool:
        if self.peek() == token:
            self.take()
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.fail(f"expected {token!r} in the schema, found {self.peek() or 'its end'!r}")

    def here(self) -> int:
        """Returns where the next token starts."""
        return len(self.text) - len(self.text[self.position :].lstrip())

    def name(self, what: str) -> str:
        at = self.here()
        token = self.peek()
        if not token.isidentifier():
            raise self.fail(f"expected {what}, found {token or 'the end'!r}", position=at)
        if keyword.iskeyword(token):
            raise self.fail(f"{what} cannot be {token!r}, a Python keyword", position=at)
        return self.take()

    def type(self, known: tuple[str, ...], what: str) -> tuple[SchemaType, str, int]:
        """Returns type, alias letter and where it started."""
        at = self.here()
        base = self.take()
        if base not in known:
            cure = _CURES.get(base, f"use one of {', '.join(known)}")
            raise self.fail(f"{what} cannot have type {base or 'nothing'!r}", cure, at)
        alias = ""
        if self.accept("("):
            alias = self.name("an alias letter")
            if not self.accept("!"):
                raise self.fail(
                    f"{base}({alias}) marks an alias that is not written to",
                    "write Tensor(a!) for a tensor that the op writes to, and Tensor for one that it reads",
                    at,
                )
            self.expect(")")
        is_list, length = False, None
        optional = self.accept("?")
        if self.accept("["):
            if base not in LIST_ELEMENTS or optional:
                raise self.fail(
                    f"{what} cannot be a list of {base}{'?' if optional else ''}",
                    "give every tensor an argument of its own"
                    if base == "Tensor"
                    else f"lists hold {', '.join(LIST_ELEMENTS)}",
                    at,
                )
            is_list = True
            if self.peek() != "]":
                token = self.take()
                if re.fullmatch(r"[0-9]{1,2}", token) is None or not 0 < int(token) <= 64:
                    raise self.fail(f"a list's length must be a number from 1 to 64, not {token!r}", position=at)
                length = int(token)
            self.expect("]")
            optional = self.accept("?")
            if optional:
                raise self.fail(f"{what} cannot be an optional list", "use an empty list for 'not given'", at)
        return SchemaType(base, optional, is_list, length), alias, at

    def default(self, kind: SchemaType, at: int) -> Default:
        value = self.literal(kind, at)
        if value is None and not kind.optional:
            raise self.fail(f"default None needs an optional type, {kind}?", position=at)
        if value is not None and kind.text in ("Tensor", "ScalarType", "Device"):
            raise self.fail(f"{kind} can only have the default None", position=at)
        if isinstance(value, tuple) != kind.is_list and value is not None:
            if kind.is_list and kind.length is not None and not isinstance(value, tuple):
                return (value,) * kind.length  # int[2] x=1 means [1, 1]
            raise self.fail(f"default {value!r} is not a value of type {kind}", position=at)
        return value

    def literal(self, kind: SchemaType, at: int) -> Default:
        token = self.take()
        if token == "[":
            entries: list[bool | int | float] = []
            while not self.accept("]"):
                entry = None if self.peek() == "[" else self.literal(SchemaType(kind.text), at)
                if entry is None or isinstance(entry, tuple):
                    raise self.fail("a list default holds numbers or booleans", position=at)
                entries.append(entry)
                if self.peek() != "]":
                    self.expect(",")
            return tuple(entries)
        if token in ("True", "False", "None"):
            value: bool | None = {"True": True, "False": False, "None": None}[token]
            if value is not None and kind.text != "bool":
                raise self.fail(f"default {token} is not a value of type {kind}", position=at)
            return value
        if re.fullmatch(r"[+-]?\d+", token) and kind.text in ("int", "SymInt"):
            if len(token.lstrip("+-0")) > 19 or not -(2**63) <= int(token) < 2**63:
                raise self.fail(f"default {token} does not fit 64 bits", position=at)
            return int(token)
        if re.fullmatch(r"[+-]?\.?\d.*", token) and kind.text == "float":
            if not math.isfinite(float(token)):
                raise self.fail(f"default {token} is larger than any float", position=at)
            return float(token)
        raise self.fail(f"default {token!r} is not a value of type {kind}", position=at)

    def arguments(self) -> tuple[Argument, ...]:
        found: dict[str, Argument] = {}
        aliases: dict[str, str] = {}
        keyword_only = False
        self.expect("(")
        while not self.accept(")"):
            if found or keyword_only:
                self.expect(",")
            if self.accept("*"):
                if keyword_only:
                    raise self.fail("the schema has two '*'")
                keyword_only = True
                continue
            kind, alias, at = self.type(ARGUMENT_TYPES, "an argument")
            name = self.name("an argument name")
            if name in found:
                raise self.fail(f"two arguments are called {name!r}", position=at)
            if alias and kind.text != "Tensor":
                raise self.fail(f"{kind} {name} cannot be written to: only a Tensor can", position=at)
            if alias and alias in aliases:
                raise self.fail(
                    f"{aliases[alias]!r} and {name!r} share the alias letter {alias!r}, which says that they overlap",
                    "give each tensor that the op writes to a letter of its own",
                    at,
                )
            if alias:
                aliases[alias] = name
            has_default = self.accept("=")
            default = self.default(kind, at) if has_default else None
            if alias and has_default:
                raise self.fail(f"{name!r} is written to and cannot have a default", position=at)
            previous = list(found.values())
            if not has_default and not keyword_only and previous and previous[-1].has_default:
                raise self.fail(f"argument {name!r} without default follows {previous[-1].name!r}, which has one", position=at)
            found[name] = Argument(name, kind, keyword_only, has_default, default, alias)
        if keyword_only and not any(argument.keyword_only for argument in found.values()):
            raise self.fail("nothing follows '*'")
        return tuple(found.values())

    def results(self) -> tuple[Return, ...]:
        self.expect("->")
        if not self.accept("("):
            kind = self.result_type()
            return (Return(kind),)
        found: list[Return] = []
        while not self.accept(")"):
            if found:
                self.expect(",")
            kind = self.result_type()
            name = self.name("a result name") if self.peek().isidentifier() else ""
            if name and any(result.name == name for result in found):
                raise self.fail(f"two results are called {name!r}")
            found.append(Return(kind, name))
        return tuple(found)

    def result_type(self) -> SchemaType:
        kind, alias, at = self.type(RETURN_TYPES, "a result")
        if alias:
            raise self.fail(
                "a result that is an argument cannot be compiled or exported by torch",
                "return nothing, '-> ()': the caller holds the tensor that the op writes to",
                at,
            )
        if kind.optional or kind.is_list:
            raise self.fail(f"a result cannot have type {kind}", "return tensors and numbers, a fixed number of them", at)
        return kind


def parse_schema(text: str, location: SourceLocation | None = None) -> Schema:
    """Parses `name(Tensor x, int n=1, *, Tensor(a!) y) -> Tensor`.

    Raises SchemaError for everything that torch refuses or aborts on when the library is loaded, for types that torch's
    stable ABI cannot pass, and for what torch.compile and export cannot call.
    """
    parser = _Parser(text, location)
    name = parser.name("the op's name")
    if parser.peek() == ":":
        raise parser.fail("the schema names a namespace", "leave it out: --namespace of the build gives it")
    if parser.peek() == ".":
        raise parser.fail(f"the schema names an overload of {name!r}", "leave it out: the .out overload is generated")
    arguments = parser.arguments()
    returns = parser.results()
    if parser.peek():
        raise parser.fail(f"unexpected {parser.peek()!r} after the schema")
    schema = Schema(name, arguments, returns)
    mutated = [argument.name for argument in arguments if argument.mutated]
    numbers = [str(result) for result in returns if result.type.text != "Tensor"]
    if mutated and numbers:
        raise parser.fail(
            f"{name!r} writes to {', '.join(mutated)} and returns {', '.join(numbers)}: torch.compile cannot call such an op",
            "return the number in a Tensor",
        )
    if not mutated and not returns:
        raise parser.fail(f"{name!r} has no result and writes to no argument", "mark what it writes to: Tensor(a!) x")
    if not any(argument.is_tensor for argument in arguments):
        raise parser.fail(
            f"{name!r} takes no Tensor: torch could not choose between its CPU and CUDA kernels", "take at least one Tensor"
        )
    if all(argument.type.optional for argument in schema.tensors):
        raise parser.fail(
            f"every Tensor of {name!r} is optional: a call without one has no device", "make one of them required"
        )
    return schema


def check_unique(schemas: Mapping[str, SourceLocation | None], name: str, location: SourceLocation | None) -> None:
    """Raises SchemaError if an op called `name` exists: torch aborts the process when a name is defined twice."""
    if name in schemas:
        raise SchemaError(
            f"op {name!r} is defined twice; the other is at {schemas[name]}", location=location, cure="rename one"
        )
