"""A document of JSON that has another shape than its reader states is refused, and the error names the place in it."""

from __future__ import annotations

from typing import Any

import pytest

from kernelpack.files.document import Either, read_document

SHAPE = {
    "op": str,
    "times": {...: [float | None]},
    "pair": (str, int),
    "warps?": range(1, 33),
    "more?": Either([str], float),
    "some?": (int, ...),
}
GOOD = '{"op": "x", "times": {"a": [1, 0.5, null]}, "pair": ["n", 3], "warps": 32, "more": ["y"]}'


def test_a_document_of_the_stated_shape_is_read_as_it_is() -> None:
    assert read_document(GOOD, SHAPE) == {
        "op": "x", "times": {"a": [1, 0.5, None]}, "pair": ["n", 3], "warps": 32, "more": ["y"]
    }  # fmt: skip
    assert read_document(b'{"op": "x", "times": {}, "pair": ["n", 3], "more": 2}', SHAPE)["more"] == 2
    assert read_document("[true, null, {}]", object) == [True, None, {}]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"x"', "3", "op: expected a text, found 3"),
        ('"op"', '"oop"', "all of it: 'op' is missing"),
        ('"more"', '"mre"', '"mre": there is no such name; known are op, times, pair, warps, more, some'),
        ("0.5", '"0.5"', r'times.a\[1\]: expected a number or null, found "0.5"'),
        ("0.5", "true", r"times.a\[1\]: expected a number or null, found true"),
        ("0.5", "1" + "0" * 400, r"times.a\[1\]: expected a number or null, found 100000000.*\.\.\."),
        ("[1, 0.5, null]", "{}", r"times.a: expected a list, found \{\}"),
        ('["n", 3]', '["n", 3, 4]', "pair: expected a list of 2 values, found a list of 3"),
        ("3]", "9223372036854775808]", r"pair\[1\]: expected a whole number of 64 bits, found 9223372036854775808"),
        ("3]", "3.0]", r"pair\[1\]: expected a whole number of 64 bits, found 3.0"),
        ('"x"', '"\\ud800"', r'op: expected a text, found "\\ud800"'),
        ('"a"', '"\\udfff"', r'times."\\udfff": there is no such name'),
        ("32", "33", "warps: expected a whole number from 1 to 32, found 33"),
        ("32", '32, "some": [1, null]', r"some\[1\]: expected a whole number of 64 bits, found null"),
        ("32", '32, "some": []', r"some: expected a list of one value or more, found \[\]"),
        ("32", "1.0", "warps: expected a whole number from 1 to 32, found 1.0"),
        ('["y"]', '"y"', 'more: expected a list, found "y"'),
        (GOOD, "3", "all of it: expected names with values, found 3"),
        (GOOD, "", "Expecting value"),
        (GOOD, "[" * 100_000, "it is nested too deep"),
        ("32", "1" * 5000, "digits"),
    ],
)
def test_a_document_of_another_shape_is_refused_with_the_place(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(ValueError, match=message):
        read_document(GOOD.replace(old, new, 1), SHAPE)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        read_document(b'"\xff"', str)


def test_a_shape_may_hold_itself() -> None:
    frame: dict[str, Any] = {"name": str}
    frame["inner"] = [frame]
    text = '{"name": "x", "inner": [' * 400 + "]}" * 400
    assert read_document(text, frame)["inner"][0]["inner"][0]["name"] == "x"
    with pytest.raises(ValueError, match=r"^inner\[0\]\.inner\[0\](\.inner\[0\])*\.name: expected a text"):
        read_document(text[::-1].replace('"x"', "3", 1)[::-1], frame)


def test_what_is_nested_as_deep_as_python_reads_is_checked() -> None:
    shape: Any = object
    assert read_document("[" * 900 + "]" * 900, shape)
