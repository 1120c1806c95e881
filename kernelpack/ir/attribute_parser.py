"""Parses what IR text is made of below operations: tokens, types, attributes and locations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from kernelpack.errors import ParseError, SourceLocation
from kernelpack.ir.core import UNKNOWN, Attribute, Location
from kernelpack.ir.dialect import AttributeDef, OpDef
from kernelpack.ir.formats import decode, normal
from kernelpack.ir.types import (
    FLOATS,
    INTEGERS,
    TOKEN,
    Encoding,
    FloatType,
    FunctionType,
    IntegerType,
    MemDescType,
    PointerType,
    TensorDescType,
    TensorType,
    Type,
)

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|//[^\n]*)+)
      |(?P<place>loc\("(?:[^"\\]|\\.)*":\d+:\d+\))
      |(?P<ssa>%[\w$.-]+(?:\#\d+)?)
      |(?P<symbol>@(?:[\w$.-]+|"[^"]*"))
      |(?P<alias>\#[A-Za-z_][\w.]*)
      |(?P<bang>![A-Za-z_][\w.]*)
      |(?P<label>\^\w+)
      |(?P<string>"(?:[^"\\]|\\.)*")
      |(?P<number>-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?))
      |(?P<word>[A-Za-z_][\w$.]*)
      |(?P<arrow>->|::)
      |(?P<punctuation>[-{}()\[\]<>,:=*+/?])
      |(?P<unknown>.)""",
    re.VERBOSE,
)

MOST_NESTED = 150
"""How deep regions, types and attributes nest. Each takes up to 6 of the 1,000 frames that Python has by default."""

EncodingParser = Callable[["AttributeParser"], Encoding]
ENCODINGS: dict[str, EncodingParser] = {}
"""Parsers of `#name<...>` encodings, by name; called with the parser standing after the name."""


class AttributeParser:
    """A recursive-descent parser over one text. Encoding parsers use `accept`, `expect`, `integer` and `attribute`."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.kinds: list[str] = []  # of the tokens
        self.texts: list[str] = []
        self.offsets: list[int] = []
        for match in _TOKEN.finditer(text):
            kind = match.lastgroup
            if kind == "space":
                continue
            if kind == "unknown":
                raise self.error(f"unexpected character {match.group()!r}", match.start())
            assert kind is not None
            self.kinds.append(kind)
            self.texts.append(match.group())
            self.offsets.append(match.start())
        self.kinds.append("end")
        self.texts.append("")
        self.offsets.append(len(text))
        self.at = 0
        self.depth = 0
        self.aliases: dict[str, Attribute] = {}
        self.places: dict[str, Location] = {}  # by `loc("file":line:column)`, which is one token: most operations have one
        self.location_aliases = self._collect_location_aliases()

    # ---- tokens ----

    def error(self, message: str, offset: int | None = None) -> ParseError:
        offset = self.offsets[self.at] if offset is None else offset
        line = self.text.count("\n", 0, offset) + 1
        column = offset - (self.text.rfind("\n", 0, offset) + 1) + 1
        return ParseError(message, location=SourceLocation(self.file, line, column))

    @property
    def kind(self) -> str:
        return self.kinds[self.at]

    @property
    def token(self) -> str:
        return self.texts[self.at]

    def next(self) -> str:
        if self.kind == "end":
            raise self.error("unexpected end")
        self.at += 1
        return self.texts[self.at - 1]

    def peek(self, text: str) -> bool:
        return self.texts[self.at] == text  # a string's text begins with a quote

    def accept(self, text: str) -> bool:
        if self.texts[self.at] == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"expected {text!r}, found {self.token or 'the end'!r}")

    def take(self, kind: str) -> str:
        if self.kinds[self.at] != kind:
            raise self.error(f"expected a {kind}, found {self.token or 'the end'!r}")
        return self.next()

    def integer(self) -> int:
        offset = self.offsets[self.at]
        return self.whole(self.take("number"), offset)

    def whole(self, text: str, offset: int) -> int:
        """Returns the integer of 64 bits that a text is, at a place of the whole text."""
        try:
            number = int(text, 0)
            if -(1 << 63) <= number < 1 << 64:
                return number
        except ValueError:
            pass
        raise self.error(f"expected an integer of 64 bits, found {text[:40]!r}", offset)

    def number(self, kind: Type) -> bool | int | float:
        """Parses the value of a constant whose scalar type is known."""
        start = self.at
        text = "-" * self.accept("-") + self.next()
        try:
            if isinstance(kind, FloatType):
                return parse_float(text, kind)
            if kind == IntegerType(1) and text in ("true", "false"):
                return text == "true"
            if isinstance(kind, IntegerType) and -(1 << kind.width - 1) <= int(text, 0) < 1 << kind.width:
                return normal(int(text, 0), kind)
        except (ValueError, OverflowError):
            pass
        self.at = start
        raise self.error(f"{text!r} is not a constant of type {kind}")

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Holds while something is read that stands inside of another thing of its kind, and may hold others."""
        if self.depth == MOST_NESTED:
            raise self.error(f"it is nested too deep: more than {MOST_NESTED} regions, types and attributes within each other")
        self.depth += 1
        yield
        self.depth -= 1

    def comma_separated(self, parse: Callable[[], None], end: str) -> None:
        """Parses `item, item ... end`."""
        if self.accept(end):
            return
        parse()
        while self.accept(","):
            parse()
        self.expect(end)

    # ---- types ----

    def type(self) -> Type:
        with self.nested():
            return self._type()

    def _type(self) -> Type:
        if self.kind == "bang":
            return self.bang_type()
        if self.kind == "alias":
            raise self.error("expected a type, found an attribute")
        if self.peek("("):
            return self.function_type()
        word = self.take("word")
        if word == "tensor":
            shape, element = self.shaped()
            encoding = self.encoding() if self.accept(",") else None
            self.expect(">")
            return TensorType(shape, element, encoding)
        kind = scalar_type(word)
        if kind is None:
            self.at -= 1
            raise self.error(f"unknown type {word!r}")
        return kind

    def shaped(self) -> tuple[tuple[int, ...], Type]:
        """Parses `<128x64xf32` up to the element type."""
        self.expect("<")
        start = self.offsets[self.at]
        match = re.compile(r"((?:\d+x)+)").match(self.text, start)
        if match is None:
            raise self.error("expected a shape")
        shape = tuple(self.whole(extent, start) for extent in match[1].split("x") if extent)
        rest = match.end()
        # the lexer has split `128x64xf32` its own way: read again from after the shape
        word = re.compile(r"[A-Za-z]\w*").match(self.text, rest)
        end = word.end() if word is not None else rest
        while self.offsets[self.at] < end and self.kind != "end":
            self.at += 1
        if word is None:
            return shape, self.type()
        kind = scalar_type(word.group())
        if kind is None:
            raise self.error(f"unknown element type {word.group()!r}", rest)
        return shape, kind

    def bang_type(self) -> Type:
        return self.bang_body(self.take("bang"))

    def bang_body(self, name: str) -> Type:
        """Parses what follows the name of a type such as `!tt.ptr`."""
        if name in ("!tt.ptr", "!llvm.ptr"):
            self.expect("<")
            pointee = self.type()
            space = self.integer() if self.accept(",") else 1
            self.expect(">")
            return PointerType(pointee, space)
        if name == "!ttg.memdesc":
            shape, element = self.shaped()
            self.expect(",")
            encoding = self.encoding()
            mutable = False
            while self.accept(","):  # the memory space, `mutable`, and an allocation shape that we do not keep
                mutable |= self.accept("mutable")
                while not self.peek(",") and not self.peek(">") and self.kind != "end":
                    self.next()
            self.expect(">")
            return MemDescType(shape, element, encoding, mutable)
        if name == "!tt.tensordesc":
            return self.tensor_descriptor()
        if name == "!ttg.async.token":
            return TOKEN
        self.at -= 1
        raise self.error(f"unknown type {name!r}")

    def tensor_descriptor(self) -> TensorDescType:
        """Parses `<tensor<128x64xf16>>`, or `<128x64xf16>` as newer Tritons print it. An encoding is read and dropped."""
        at = self.at
        self.expect("<")
        wrapped = self.accept("tensor")
        if not wrapped:
            self.at = at
        shape, element = self.shaped()
        if self.accept(","):
            self.encoding()
        self.expect(">")
        if wrapped:
            self.expect(">")
        return TensorDescType(TensorType(shape, element))

    def function_type(self) -> FunctionType:
        inputs = self.type_list()
        self.expect("->")
        results = self.type_list() if self.peek("(") else [self.type()]
        return FunctionType(tuple(inputs), tuple(results))

    def type_list(self) -> list[Type]:
        types: list[Type] = []
        self.expect("(")
        self.comma_separated(lambda: types.append(self.type()), ")")
        return types

    def encoding(self) -> Encoding:
        name = self.take("alias")
        value = self.aliases.get(name)
        if value is None and name[1:] in ENCODINGS:
            value = ENCODINGS[name[1:]](self)
        if not isinstance(value, Encoding):
            raise self.error(f"unknown encoding {name}")
        return value

    # ---- attributes ----

    def attribute(self, row: AttributeDef | None = None) -> Attribute:
        """Parses an attribute value; a type after a number (`: i32`) is read and dropped."""
        with self.nested():
            return self._attribute(row)

    def _attribute(self, row: AttributeDef | None) -> Attribute:
        if self.kind == "string":
            return self.string()
        if self.kind == "number":
            return self.numeric_attribute(row)
        if self.accept("["):
            entries: list[Attribute] = []
            self.comma_separated(lambda: entries.append(self.attribute()), "]")
            return tuple(entries)
        if self.peek("{"):
            return self.dictionary(None)
        if self.kind == "alias":
            name = self.token
            if name in self.aliases:
                self.next()
                return self.aliases[name]
            return self.encoding()
        if self.kind == "bang":
            return self.bang_type()
        if self.kind == "symbol":
            return self.next()[1:].strip('"')
        if self.accept("true"):
            return True
        if self.accept("false"):
            return False
        if self.accept("unit"):
            return True
        if self.peek("array"):
            return self.array()
        if row is not None and isinstance(row.kind, tuple) and self.kind == "word":
            return self.next()
        return self.type()

    def numeric_attribute(self, row: AttributeDef | None) -> Attribute:
        start = self.at
        text = self.next()
        kind = self.type() if self.accept(":") else None
        end = self.at
        self.at = start
        if row is not None and isinstance(row.kind, tuple):  # Triton prints enums in dictionaries as numbers
            number = self.integer() - (1 if row.name in ("cache", "evict", "sem", "scope", "padding") else 0)
            if not 0 <= number < len(row.kind):
                self.at = start
                raise self.error(f"{text} is none of {', '.join(row.kind)}")
            value: Attribute = row.kind[number]
        elif kind is None:
            value = float(self.next()) if re.search(r"[.eE]", text) and not text.startswith("0x") else self.integer()
        else:
            value = self.number(kind)
        self.at = end
        return value

    def array(self) -> tuple[int, ...]:
        self.expect("array")
        self.expect("<")
        self.take("word")
        numbers: list[int] = []
        if self.accept(":"):
            self.comma_separated(lambda: numbers.append(self.integer()), ">")
        else:
            self.expect(">")
        return tuple(numbers)

    def string(self) -> str:
        return _unescaped(self.take("string"))

    def dictionary(self, row: OpDef | None) -> dict[str, Attribute]:
        """Parses `{name = value, flag}`; Triton's `isVolatile` is our `is_volatile`."""
        entries: dict[str, Attribute] = {}

        def entry() -> None:
            key = self.string() if self.kind == "string" else self.take("word")
            attribute_row = row.attribute_defs.get(key) if row is not None else None
            if row is not None and attribute_row is None:
                snake = re.sub(r"[A-Z]", lambda capital: "_" + capital.group().lower(), key)
                attribute_row = row.attribute_defs.get(snake)
                key = key if attribute_row is None else snake
            entries[key] = self.attribute(attribute_row) if self.accept("=") else True

        self.expect("{")
        self.comma_separated(entry, "}")
        return entries

    def optional_dictionary(self, row: OpDef | None) -> dict[str, Attribute]:
        return self.dictionary(row) if self.peek("{") else {}

    # ---- locations ----

    def _collect_location_aliases(self) -> dict[str, int]:
        """Locations may be named after their use: remember where each `#loc = loc(...)` stands."""
        return {
            self.texts[index]: index + 2
            for index, kind in enumerate(self.kinds)
            if kind == "alias" and self.texts[index + 1] == "=" and self.texts[index + 2].startswith("loc")
        }

    def location(self) -> Location:
        """Parses an optional trailing `loc(...)`."""
        if self.kinds[self.at] == "place":
            text = self.next()
            if text not in self.places:
                name, line, column = text[4:-1].rsplit(":", 2)
                offset = self.offsets[self.at - 1]
                self.places[text] = Location(
                    SourceLocation(_unescaped(name), self.whole(line, offset), self.whole(column, offset))
                )
            return self.places[text]
        if not self.accept("loc"):
            return UNKNOWN
        self.expect("(")
        location = self.location_body()
        self.expect(")")
        return location

    def location_body(self) -> Location:
        with self.nested():
            return self._location_body()

    def _location_body(self) -> Location:
        if self.kind == "alias":
            name = self.next()
            start = self.location_aliases.pop(name, None)  # out of reach while it is read: it may not name itself
            if start is None:
                return UNKNOWN
            here, self.at = self.at, start
            location = self.location()
            self.at = here
            self.location_aliases[name] = start
            return location
        if self.accept("callsite"):
            self.expect("(")
            callee = self.location_body()
            self.expect("at")
            caller = self.location_body()
            self.expect(")")
            return Location(callee.source, caller)
        if self.kind == "string":
            name = self.string()
            if self.accept(":"):
                line = self.integer()
                self.expect(":")
                column = self.integer()
                if self.accept("to"):  # a range; we keep where it starts
                    while not self.peek(")"):
                        self.next()
                return Location(SourceLocation(name, line, column))
            if self.accept("("):  # "name"(location)
                location = self.location_body()
                self.expect(")")
                return location
            return UNKNOWN
        self.next()  # unknown
        return UNKNOWN


def _unescaped(string: str) -> str:
    return re.sub(r"\\(.)", r"\1", string[1:-1])


_INTEGERS = {str(kind): kind for kind in INTEGERS}


def scalar_type(word: str) -> Type | None:
    """Returns i1 ... i64, f16, bf16, f32 ..., or None."""
    if word in FLOATS:
        return FLOATS[word]
    return _INTEGERS.get(word)


def parse_float(text: str, kind: FloatType) -> float:
    """Returns the value of a decimal, rounded to the type, or of the bits that a hexadecimal number gives."""
    if not text.lower().startswith("0x"):
        return float(normal(float(text), kind))
    bits = np.array([int(text, 16)], f"uint{kind.width}")
    return float(decode(bits, kind)[0])
