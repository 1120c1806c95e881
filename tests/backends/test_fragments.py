"""Patterns of lines match what they say, in order, with one value for each name."""

from __future__ import annotations

import pytest

from tests.backends.fragments import count, in_order

TEXT = """
  %v1 = load i32, ptr %p, align 4
  %v10 = add i32 %v1, 7
  %v11 = mul i32 %v10, %v10
  store i32 %v11, ptr %p, align 4
"""


def test_names_stand_for_one_value_each() -> None:
    bound = in_order(TEXT, "%A = load i32, ptr %P, align 4\n%B = add i32 %A, 7\nstore i32 %C, ptr %P, align 4")
    assert bound == {"A": "%v1", "P": "%p", "B": "%v10", "C": "%v11"}
    assert count(TEXT, "%X = ... i32 %A, ...", bound) == 1
    assert count(TEXT, "%X = mul i32 %Y, %Y") == 1
    assert count(TEXT, "%X = add i32 %Y, %Y") == 0


@pytest.mark.parametrize(
    "patterns",
    [
        "%A = load i64, ptr %P, align 4",
        "%A = add i32 %B, 7\n%C = load ...",  # another order
        "%A = load ...\n%B = mul i32 %A, %A",  # another value
        "%A = load i32, ptr %P",  # not the whole line
    ],
)
def test_what_is_not_there_is_an_error_that_shows_what_is(patterns: str) -> None:
    with pytest.raises(AssertionError, match="no line matches"):
        in_order(TEXT, patterns)
