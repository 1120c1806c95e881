"""Documents of JSON that are read back: parsed, and held to the shape that their reader states, with the place where they differ."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from types import UnionType
from typing import Any

Shape = Any
"""What a value must be:

int, float, bool, str, None     a value of this kind, or of one of several: `float | None`. Numbers have 64 bits; a float may be whole.
range(1, 33)                    a whole number of the range
[shape]                         a list of such values
(shape, shape)                  a list of as many values
(shape, ...)                    a list of at least one such value
{"name": shape, "more?": shape} names that must be there, and names that may; others only with Ellipsis: {...: shape}
Either(shape, shape)            one of several
object                          anything
"""


@dataclass(frozen=True, init=False)
class Either:
    """A value of one of several shapes."""

    shapes: tuple[Shape, ...]

    def __init__(self, *shapes: Shape) -> None:
        object.__setattr__(self, "shapes", shapes)


_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character, which JSON can say and no file or terminal takes."""


def read_document(text: str | bytes, shape: Shape) -> Any:
    """Returns a document of JSON. Raises ValueError, which names the place in it, for one of another shape: `kernels.mha.key[0]: expected
    a text, found 3`."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    return checked(value, shape)


def checked(value: Any, shape: Shape, place: str = "") -> Any:
    """Returns a value of JSON. Raises ValueError, which names the place in it, for one of another shape."""
    problem = _problem(value, shape, place)
    if problem is not None:
        raise ValueError(problem)
    return value


_Part = tuple[Any, Shape, str]
"""A value, the shape that it must have, and its place."""


def _problem(value: Any, shape: Shape, place: str) -> str | None:
    """Returns the first thing that is wrong. Documents nest deeper than Python recurses."""
    left: list[_Part] = [(value, shape, place)]
    while left:
        parts = _parts(*left.pop())
        if isinstance(parts, str):
            return parts
        left += reversed(parts)
    return None


def _parts(value: Any, shape: Shape, place: str) -> list[_Part] | str:
    """Returns the parts of a value that are to be checked, or what is wrong with it."""
    match shape:
        case Either():
            found = [_problem(value, one, place) for one in shape.shapes]
            if None in found:
                return []
            return found[0] or ""
        case dict() if isinstance(value, dict):
            return _named_parts(value, shape, place)
        case range() if isinstance(value, int) and not isinstance(value, bool) and value in shape:
            return []
        case list() if isinstance(value, list):
            return _listed(value, shape * len(value), place)
        case (one, rest) if rest is ... and isinstance(value, list) and value:
            return _listed(value, [one] * len(value), place)
        case tuple() if isinstance(value, list) and len(value) == len(shape):
            return _listed(value, list(shape), place)
        case _ if _is(value, shape):
            return []
    return f"{place or 'all of it'}: expected {_words(shape)}, found {_shown(value)}"


def _listed(values: list[Any], shapes: list[Shape], place: str) -> list[_Part]:
    return [(value, shape, f"{place}[{index}]") for index, (value, shape) in enumerate(zip(values, shapes, strict=True))]


def _named_parts(value: dict[str, Any], shape: dict[Any, Shape], place: str) -> list[_Part] | str:
    known = {name.removesuffix("?"): one for name, one in shape.items() if name is not ...}
    missing = next((name for name in shape if name is not ... and name not in value and name[-1] != "?"), None)
    if missing is not None:
        return f"{place or 'all of it'}: {missing!r} is missing"
    parts = []
    for name, entry in value.items():
        if not (name in known if ... not in shape else _is(name, str)):
            return f"{f'{place}.' if place else ''}{_shown(name)}: there is no such name; known are {', '.join(known)}"
        parts.append((entry, known[name] if name in known else shape[...], f"{place}.{name}" if place else name))
    return parts


def _is(value: Any, shape: Shape) -> bool:
    if shape is object:
        return True
    if isinstance(shape, UnionType):
        return any(_is(value, one) for one in shape.__args__)
    if shape in (None, type(None)):
        return value is None
    if isinstance(value, bool):
        return shape is bool
    if isinstance(value, int):
        return shape in (int, float) and -(2**63) <= value < 2**63
    if isinstance(value, str):
        return shape is str and _SURROGATE.search(value) is None
    return isinstance(shape, type) and isinstance(value, shape)


def _words(shape: Shape) -> str:
    if isinstance(shape, dict):
        return "names with values"
    if isinstance(shape, range):
        return f"a whole number from {shape.start} to {shape.stop - 1}"
    if isinstance(shape, tuple) and ... in shape:
        return "a list of one value or more"
    if isinstance(shape, tuple):
        return f"a list of {len(shape)} values"
    if isinstance(shape, list):
        return "a list"
    if isinstance(shape, UnionType):
        return " or ".join(map(_words, shape.__args__))
    return {int: "a whole number of 64 bits", float: "a number", bool: "true or false", str: "a text"}.get(shape, "null")


def _shown(value: Any) -> str:
    """Returns the beginning of a value as JSON writes it."""
    if isinstance(value, (dict, list)) and value:
        return f"{'names with values' if isinstance(value, dict) else f'a list of {len(value)}'}"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
