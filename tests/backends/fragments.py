"""Finds lines in the text of LLVM IR (or PTX) by patterns, in which values have names of the test's own.

A pattern is a whole line without its indentation. In it `%A` (a capital letter, and what follows) stands for a value: whichever it
is where the name comes first, the same one from then on. `...` stands for anything. All else is taken as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_PARTS = re.compile(r"(%[A-Z]\w*|\.\.\.)")
_SHOWN = 40
"""How many lines an error shows."""


def in_order(text: str, patterns: str) -> dict[str, str]:
    """Asserts that lines of a text match the lines of `patterns` one after the other, with any lines between them.

    Returns what the names of the patterns stand for. A name is bound by the first line that its pattern matches.
    """
    lines = [line.strip() for line in text.splitlines()]
    bound: dict[str, str] = {}
    place = 0
    for pattern in filter(None, map(str.strip, patterns.splitlines())):
        expression = _expression(pattern, bound)
        found = next((number for number in range(place, len(lines)) if expression.fullmatch(lines[number])), None)
        if found is None:
            following = "\n".join(lines[place : place + _SHOWN])
            raise AssertionError(f"no line matches\n  {pattern}\nwith {bound}, among those that follow:\n{following}")
        match = expression.fullmatch(lines[found])
        assert match is not None
        bound |= {name: value for name, value in match.groupdict().items() if value is not None}
        place = found + 1
    return bound


def count(text: str, pattern: str, bound: Mapping[str, str] = {}) -> int:
    """Returns how many lines match a pattern."""
    expression = _expression(pattern.strip(), bound)
    return sum(1 for line in text.splitlines() if expression.fullmatch(line.strip()))


def _expression(pattern: str, bound: Mapping[str, str]) -> re.Pattern[str]:
    seen: set[str] = set()

    def part(text: str) -> str:
        if text == "...":
            return ".*"
        if not re.fullmatch(_PARTS, text):
            return re.escape(text)
        name = text[1:]
        if name in bound:
            return re.escape(bound[name]) + r"(?![\w.])"
        if name in seen:
            return f"(?P={name})"
        seen.add(name)
        return rf"(?P<{name}>%[\w.]+)"

    return re.compile("".join(part(text) for text in _PARTS.split(pattern)))
