"""What may be assumed of a kernel's arguments: facts, their kinds, and the tests that find them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Fact:
    """Something that compiled code assumes of an argument: `property` is one of the backend's, e.g. tt.divisibility."""

    parameter: str
    property: str
    value: int

    def __str__(self) -> str:
        return f"{self.parameter}:{self.property}={self.value}"


@dataclass(frozen=True)
class Test:
    """How a property is decided of a run-time argument: in Python, and by a C++ condition in which `{arg}` and `{value}` stand for
    what is compared. The number is an integer's value or a pointer's address; with `of_reach`, how many bytes lie from a
    pointer to the end of its tensor. `implies(value, other)` says whether the test for `other` holds wherever that for `value` does."""

    guard: str
    holds: Callable[[int, int], bool]
    of_reach: bool = False
    implies: Callable[[int, int], bool] = operator.eq

    def condition(self, argument: str, value: int) -> str:
        """Returns the guard for an argument, which is a C++ expression."""
        return self.guard.replace("{arg}", argument).replace("{value}", str(value))


EQUAL_TO = Test("{arg} == {value}", lambda number, value: number == value)
"""The argument is the value: it becomes a constant and is no parameter of the kernel any more. Only for numbers whose type the
kernel leaves open."""


DIVISIBLE_BY = Test(
    "{arg} % {value} == 0", lambda number, value: number % value == 0, implies=lambda value, other: value % other == 0
)
"""The argument is a multiple of the value. `do_not_specialize_on_alignment` excludes it."""


REACHES = Test(
    "{arg} >> ({value} - 1) == 0", lambda number, value: number >> (value - 1) == 0, of_reach=True, implies=operator.le
)
"""Offsets of so many bits, in bytes, reach every element of the tensor that a pointer points to."""

RANGE = "tt.pointer_range"
"""The property of pointers by which offsets of 32 bits, in bytes and with a sign, reach all of their tensors."""


@dataclass(frozen=True)
class ArgumentProperty:
    """One of a backend's argument specializations: code may assume of arguments to which it `applies` (by their ttir type, as
    text) that the `test` holds for `value`. `name` is the attribute by which the backend's stages see it."""

    name: str
    value: int
    test: Test
    applies: Callable[[str], bool]

    def holds(self, number: int) -> bool:
        """Whether a call's argument has the property."""
        return self.test.holds(number, self.value)


def integers(kind: str) -> bool:
    """Whether a ttir type is that of the integers that sizes and strides have."""
    return kind in ("i32", "i64")


def pointers(kind: str) -> bool:
    """Whether a ttir type is a pointer."""
    return kind.startswith("!tt.ptr")


def numbers_and_pointers(kind: str) -> bool:
    return integers(kind) or pointers(kind)
