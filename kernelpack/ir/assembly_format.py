"""The form language of dialect rows: what stands after an operation's name, read once and used by printer and parser.

$name            an operand, or an attribute's word or number
type($name)      the type of an operand or of the result(s)
type($name, !tt.ptr)     the same without the type's name, which the form implies: <f16>
type-if-shaped($name)   the same with a comma, only where it is a tensor
attr-dict        the attributes that the rest of the form does not mention, in braces, if there are any; a form that does not
                 say where they stand has them before the first colon, or at the end
functional-type  (operand types) -> result type
( ... )?         present only if its first $name is
anything else    itself
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Literal:
    text: str


@dataclass(frozen=True)
class Variable:
    name: str


@dataclass(frozen=True)
class TypeOf:
    name: str
    if_shaped: bool = False
    mnemonic: str = ""


@dataclass(frozen=True)
class AttrDict:
    pass


@dataclass(frozen=True)
class FunctionalType:
    pass


@dataclass(frozen=True)
class Optional:
    elements: tuple[Element, ...]

    @property
    def anchor(self) -> str:
        """The operand or attribute whose presence decides."""
        return next(element.name for element in self.elements if isinstance(element, Variable))


Element = Literal | Variable | TypeOf | AttrDict | FunctionalType | Optional

_TOKEN = re.compile(
    r"\s*(?:(?P<type>type(?P<shaped>-if-shaped)?\(\$(?P<of>\w+)(?:, (?P<mnemonic>![\w.]+))?\))|(?P<dict>attr-dict)|(?P<functional>functional-type)"
    r"|\$(?P<variable>\w+)|(?P<open>\()|(?P<close>\)\?)|(?P<literal>->|\w+|[^\s\w]))"
)


@functools.cache
def parse_format(text: str) -> tuple[Element, ...]:
    """Reads a form. Raises ValueError where it is malformed."""
    elements = list(_elements(_TOKEN.finditer(text), nested=False))
    if AttrDict() not in elements:
        colon = Literal(":")
        elements.insert(elements.index(colon) if colon in elements else len(elements), AttrDict())
    return tuple(elements)


def _elements(tokens: Iterator[re.Match[str]], nested: bool) -> Iterator[Element]:
    for match in tokens:
        if match["type"]:
            yield TypeOf(match["of"], bool(match["shaped"]), match["mnemonic"] or "")
        elif match["dict"]:
            yield AttrDict()
        elif match["functional"]:
            yield FunctionalType()
        elif match["variable"]:
            yield Variable(match["variable"])
        elif match["open"]:
            yield Optional(tuple(_elements(tokens, nested=True)))
        elif match["close"]:
            if not nested:
                raise ValueError("')?' without '('")
            return
        else:
            yield Literal(match["literal"])
    if nested:
        raise ValueError("'(' without ')?'")


@functools.cache
def mentioned(text: str) -> frozenset[str]:
    """Returns the names that appear as `$name` in a form."""

    def names(elements: tuple[Element, ...]) -> Iterator[str]:
        for element in elements:
            if isinstance(element, Variable):
                yield element.name
            elif isinstance(element, Optional):
                yield from names(element.elements)

    return frozenset(names(parse_format(text)))
