"""Streamed text: what is given out after each token is just what is certain by then, however tokens cut characters and stop strings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random

import pytest

from serving_examples.language_model.tokens import model_file
from tests.serving.language_model.reader import Reader
from tests.serving.language_model.strings import no_text, text


def held_to(reader: Reader, tokens: Sequence[bytes], stops: Sequence[str] = ()) -> str:
    """Returns the whole text, and holds each step to a model on the text so far."""
    steps = reader.stream(tokens, [stop.encode() for stop in stops])
    seen, given, left = "", "", b""
    for number, (part, stopped) in enumerate(steps):
        left += tokens[number] if number < len(tokens) else b""
        size = len(left) - (begun_character(left) if number < len(tokens) else 0)
        seen, left = seen + left[:size].decode(errors="replace"), left[size:]
        given += part.decode()
        end = end_of(seen, stops)
        assert stopped == (end is not None), (tokens, stops, number)
        if end is None and number < len(tokens):
            end = len(seen) - begun(seen, stops)
        assert given == seen[:end], (tokens, stops, number)
    return given


def begun_character(data: bytes) -> int:
    """Returns how many bytes at the end of some may begin a character. Python's incremental decoder also waits after half surrogates."""
    for size in (1, 2, 3):
        try:
            data[-size:].decode()
        except UnicodeDecodeError as error:
            if error.start == 0 and error.reason == "unexpected end of data":
                return min(size, len(data))
    return 0


def end_of(seen: str, stops: Sequence[str]) -> int | None:
    """Returns where a text ends: before the stop string that is whole first; of several, before the longest."""
    found = [(seen.find(stop) + len(stop), seen.find(stop)) for stop in stops if stop and stop in seen]
    return min(found)[1] if found else None


def begun(seen: str, stops: Sequence[str]) -> int:
    """Returns how much of a text's end a stop string may begin with."""
    return max((size for stop in stops for size in range(len(stop)) if seen.endswith(stop[:size])), default=0)


def cut(data: bytes, random: Random) -> list[bytes]:
    """Returns tokens that make up the data, some of them empty."""
    places = sorted(random.randrange(len(data) + 1) for _ in range(random.choice((0, 1, 3, len(data), 2 * len(data)))))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def stops_for(data: str, random: Random) -> list[str]:
    """Returns stop strings: parts of the text, such as overlap, others that it nearly has, and some of no use."""
    stops = []
    for _ in range(random.randrange(5)):
        at = random.randrange(len(data) + 1)
        part = data[at : at + random.randrange(1, 8)]
        stops.append(random.choice((part, part, part + "x", part[:-1] + "\u00e8", part + part, part[1:], "\ufffd", "")))
    return stops


def compare(reader: Reader, count: int, seed: int) -> None:
    random = Random(seed)
    reader.open(model_file())
    reader.load_tokenizer()
    for number in range(count):
        data = no_text(random) if number % 3 == 0 else text(random).encode()
        said = data.decode(errors="replace")
        if number % 2:
            tokens = [part for part, _ in reader.tokens(reader.encode(data))]
            data = b"".join(tokens)
        else:
            tokens = cut(data, random)
        assert held_to(reader, tokens) == data.decode(errors="replace")
        held_to(reader, tokens, stops_for(said, random))
        few = "".join(random.choice("ab\u00e9") for _ in range(random.randrange(20)))
        some = [
            "".join(random.choice("ab\u00e9") for _ in range(random.randrange(1, 6))) for _ in range(random.randrange(1, 4))
        ]
        held_to(reader, cut(few.encode(), random), some)


def test_text_is_given_out_as_soon_as_it_is_certain(reader: Reader) -> None:
    compare(reader, 600, 1)


@pytest.mark.slow
def test_many_texts(reader: Reader) -> None:
    compare(reader, 100_000, 2)


def test_every_pair_of_bytes_and_more_of_those_that_matter(reader: Reader) -> None:
    edges = bytes([0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xDF, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5])
    every = [bytes([first, second]) for first in range(256) for second in range(256)]
    every += [
        bytes([first, second, third, fourth])
        for first in edges
        for second in edges
        for third in edges
        for fourth in b"\x80a\xe2"
    ]
    # each begins anew after a letter; the readers get them byte by byte
    data = [bytes([byte]) for part in every for byte in part + b"|"]
    assert b"".join(part for part, _ in reader.stream(data)).decode() == b"".join(data).decode(errors="replace")


@pytest.mark.parametrize(
    ("tokens", "stops", "expected"),
    [
        (["Hello", " wor", "ld"], ["wo"], "Hello "),
        (["a", "b", "c", "d"], ["bcd"], "a"),
        (["abab", "abc"], ["ababc"], "ab"),
        (["abcd"], ["abcd", "bc"], "a"),  # bc is whole first
        (["abc"], ["bc", "abc"], ""),  # both at once: the longest
        (["x\n", "\nUser:", " y"], ["\n\nUser:", "\n\n\n"], "x"),
        (["x\n", "\nUs", "er"], ["\n\nUser:"], "x\n\nUser"),  # held back to the end
        ([b"\xc3", b"\xa9t\xc3", b"\xa9"], ["t\u00e9"], "\u00e9"),
        ([b"\xc3", b"\xa8x"], ["\u00e9"], "\u00e8x"),  # begins as the stop string does
        ([b"a\xff", b"b"], ["\ufffdb"], "a"),
        ([b"a\xe4\xb8"], ["\ufffd"], "a"),  # cut short at the end
        (["aaa"], [""], "aaa"),
        ([], ["x"], ""),
    ],
)
def test_stop_strings(reader: Reader, tokens: list[str | bytes], stops: list[str], expected: str) -> None:
    data = [token if isinstance(token, bytes) else token.encode() for token in tokens]
    assert held_to(reader, data, stops) == expected
    single = [bytes([byte]) for token in data for byte in token]
    assert held_to(reader, single, stops) == expected


def test_a_long_stop_string_costs_no_more_than_a_short_one(reader: Reader) -> None:
    half = 50_000
    stop = b"a" * half + b"b" + b"a" * half
    began = time.monotonic()
    steps = reader.stream([b"a"] * (2 * half) + [b"b"] * 2, [stop, b"a" * half + b"c"])
    assert time.monotonic() - began < 5
    assert b"".join(part for part, _ in steps) == b"a" * (2 * half) + b"bb"
