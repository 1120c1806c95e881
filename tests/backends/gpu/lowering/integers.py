"""Computes lines of integer arithmetic for one thread, to compare addresses and coordinates with the layouts they stand for."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

_BINARY: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "shl": operator.lshift, "lshr": operator.rshift,
}  # fmt: skip
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "ult": operator.lt, "ule": operator.le, "ugt": operator.gt, "uge": operator.ge,
}  # fmt: skip
_LINE = re.compile(r"(%\w+) = (\w+)(?: nsw| nuw)* (.*)")
_OFFSET = re.compile(r"(%\w+) = getelementptr (\w+), ptr addrspace\(\d\) ([%@]\w+), i(?:32|64) (\S+)")
_BYTES = {"i8": 1, "i16": 2, "half": 2, "bfloat": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}


def run(text: str, given: Mapping[str, int]) -> dict[str, int]:
    """Returns the integers of the lines that can be computed from those given; pointers are bytes from where they start."""
    known = dict(given)

    def value(name: str) -> int:
        return known[name] if name in known else int(name)

    for line in map(str.strip, text.splitlines()):
        try:
            if offset := _OFFSET.fullmatch(line):
                name, kind, base, count = offset.groups()
                known[name] = known.get(base, 0) + _BYTES[kind] * value(count)
            elif match := _LINE.fullmatch(line):
                name, what, rest = match.groups()
                known |= _computed(name, what, rest, value)
        except (KeyError, ValueError):
            continue
    return known


def _computed(name: str, what: str, rest: str, value: Callable[[str], int]) -> dict[str, int]:
    words = rest.replace(",", "").split()
    if what in _BINARY and len(words) == 3:
        return {name: _BINARY[what](value(words[1]), value(words[2])) & (1 << int(words[0][1:])) - 1}
    if what == "icmp":
        return {name: int(_COMPARE[words[0]](value(words[2]), value(words[3])))}
    if what == "select":
        return {name: value(words[3] if value(words[1]) else words[5])}
    if what == "zext":
        return {name: value(words[1])}
    if what == "call" and "ctpop" in rest:
        return {name: value(words[-1].rstrip(")")).bit_count()}
    return {}


def returned(text: str) -> list[str]:
    """Returns the registers of the last value that is returned."""
    return text.splitlines()[-1].removeprefix("return ").split(", ")
