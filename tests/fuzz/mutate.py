"""Changes of inputs that keep some of their form: bytes, words, lines, nesting, and documents of JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

MOST = 1 << 16
"""The bytes of the longest input: errors of long ones are those of short ones, later."""

NUMBERS = (
    b"0", b"1", b"-1", b"2", b"3", b"7", b"16", b"255", b"65536", b"2147483647", b"2147483648", b"-2147483649",
    b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808", b"18446744073709551616", b"99999999999999999999999",
    b"1e400", b"-1e400", b"nan", b"inf", b"0.5", b"1e-400", b"0x7f", b"0x", b"1_0", b"00", b"+1", b"1" * 5000,
)  # fmt: skip
TEXTS = (
    b"", b" ", b"\n", b"\t", b"\0", b"\xff", b"\xc3\xa9", b"\xe2\x80\xa8", b"\xd9\xa1", b"\xf0\x9f\x98\x80", b"\\", b'"', b"'", b"..",
    b"/", b"%", b"{}", b"=", b"None", b"True", b"null",
)  # fmt: skip

Change = Callable[[bytes, Random, Sequence[bytes], Sequence[bytes]], bytes]


def mutated(data: bytes, random: Random, others: Sequence[bytes], tokens: Sequence[bytes] = ()) -> bytes:
    """Returns an input after one to four changes."""
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 4))):
        data = random.choice(_CHANGES)(data, random, others, tokens)[:MOST]
    return data


def _span(data: bytes, random: Random, most: int = 64) -> tuple[int, int]:
    start = random.randint(0, len(data))
    return start, min(len(data), start + random.randint(0, random.choice((1, 4, 16, most))))


def _change_byte(data: bytes, random: Random, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    start = random.randint(0, len(data))
    return data[:start] + bytes([random.randrange(256)]) + data[start + random.randint(0, 1) :]


def _insert(data: bytes, random: Random, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    start, end = _span(data, random)
    word = random.choice(random.choice((tokens or TEXTS, tokens or TEXTS, NUMBERS, TEXTS)))
    return data[:start] + word + data[random.choice((start, end)) :]


def _delete(data: bytes, random: Random, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    start, end = _span(data, random)
    return data[:start] + data[end:]


def _copy(data: bytes, random: Random, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    start, end = _span(random.choice([data, *others]), random)
    at = random.randint(0, len(data))
    return data[:at] + data[start:end] + data[at:]


def _repeat(data: bytes, random: Random, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    start, end = _span(data, random, 16)
    word = random.choice([data[start:end], *tokens, b"(", b"[", b"{", b"<"])
    return data[:start] + word * random.choice((2, 10, 100, 3000)) + data[end:]


def _change_word(data: bytes, random: Random, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    """Replaces a word by another one of this input or of one like it."""
    words = list(re.finditer(rb"[\w.$%@#!-]+", data))
    if not words:
        return data
    word = random.choice(words)
    found = re.findall(rb"[\w.$%@#!-]+", random.choice([data, *others][-8:]))
    return data[: word.start()] + random.choice([*found, *tokens, b"x"]) + data[word.end() :]


def _change_number(data: bytes, random: Random, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    numbers = list(re.finditer(rb"-?\d+", data))
    if not numbers:
        return data
    number = random.choice(numbers)
    return data[: number.start()] + random.choice(NUMBERS) + data[number.end() :]


def _change_lines(data: bytes, random: Random, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    """Drops, repeats, moves or replaces a line."""
    lines = data.split(b"\n")
    at, other = random.randrange(len(lines)), random.randrange(len(lines))
    foreign = random.choice((random.choice(others) if others else data).split(b"\n"))
    lines[at : at + 1] = random.choice(([], [lines[at], lines[at]], [lines[other]], [foreign], [lines[at], foreign], [b""]))
    return b"\n".join(lines)


_CHANGES: tuple[Change, ...] = (
    _change_byte, _insert, _insert, _delete, _copy, _repeat, _change_word, _change_word, _change_number, _change_lines, _change_lines,
)  # fmt: skip


# -- JSON -----------------------------------------------------------------------------------------------------------------------

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 2**31, 2**63, -(2**63), 2**64, 10**400, 0.5, 1e308, float("inf"), float("nan"), "", "x", "\0", "\ud800",
    "1", "é", [], [None], [0], [[]], {}, {"x": 1}, [1, 2, 3], "a" * 1000,
)  # fmt: skip


def json_mutated(text: bytes, random: Random) -> bytes:
    """Returns a document with values replaced by others of all kinds, dropped, renamed or nested; a text that is no JSON as it is."""
    try:
        document = json.loads(text)
        for _ in range(random.choice((1, 1, 2, 3))):
            document = _changed(document, random)
        return json.dumps(document).encode()
    except (ValueError, RecursionError):
        return text


def _changed(value: Any, random: Random) -> Any:
    inner = isinstance(value, (dict, list)) and bool(value)
    if not inner or random.random() < 0.15:
        return random.choice([*_VALUES, [value], {"x": value}, [value, value]])
    copy: Any = value.copy()
    keys = list(copy) if isinstance(copy, dict) else list(range(len(copy)))
    key = random.choice(keys)
    what = random.random()
    if what < 0.1:
        del copy[key]
    elif what < 0.2 and isinstance(copy, dict):
        copy[random.choice(["x", "", "1", "é", "\0", *map(str, keys)])] = copy.pop(key)
    elif what < 0.25 and isinstance(copy, dict):
        copy[random.choice(["x", "more"])] = random.choice(_VALUES)
    elif what < 0.3 and isinstance(copy, list):
        copy.insert(0, random.choice(_VALUES))
    elif what < 0.32:
        deep: Any = copy[key]
        for _ in range(random.choice((10, 300, 900))):
            deep = [deep]
        copy[key] = deep
    else:
        copy[key] = _changed(copy[key], random)
    return copy
