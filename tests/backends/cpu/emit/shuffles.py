"""Computes what emitted lines of shuffles, casts and arithmetic give, element by element, for tests of what moves lanes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

Vector = list[object]

_SHUFFLE = re.compile(r"(%\w+) = shufflevector <\d+ x \w+> (%\w+), <\d+ x \w+> (%\w+|poison), <\d+ x i32> <(.*)>")
_BINARY = re.compile(r"(%\w+) = ((?:\w+ )+)<\d+ x \w+> (%\w+), (%\w+)")
_CAST = re.compile(r"(%\w+) = bitcast <(\d+) x \w+> (%\w+) to <(\d+) x \w+>")


def run(
    lines: Sequence[str], given: dict[str, Vector], combine: Callable[[object, object], object] = lambda a, b: (a, b)
) -> dict[str, Vector]:
    """Returns all vectors by their names. `combine` stands for every binary operation; a bitcast to wider lanes makes tuples."""
    known = dict(given)
    for line in map(str.strip, lines):
        if shuffle := _SHUFFLE.fullmatch(line):
            name, first, second, lanes = shuffle.groups()
            both = known[first] + (known[second] if second != "poison" else [None] * len(known[first]))
            known[name] = [both[int(lane.split()[1])] for lane in lanes.split(", ")]
        elif cast := _CAST.fullmatch(line):
            name, before, source, after = cast[1], int(cast[2]), cast[3], int(cast[4])
            step = before // after
            known[name] = [tuple(known[source][at : at + step]) for at in range(0, before, step)]
        elif binary := _BINARY.fullmatch(line):
            name, _, first, second = binary.groups()
            known[name] = [combine(a, b) for a, b in zip(known[first], known[second], strict=True)]
        else:
            raise AssertionError(f"no shuffle, cast or binary operation: {line}")
    return known
