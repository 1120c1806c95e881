"""What arguments that consist of others are made of: the entries of tuples, named tuples and aggregates."""

from __future__ import annotations

import functools
import typing
from collections.abc import Sequence
from typing import Any

from kernelpack.kernel.aggregates import user_aggregate
from kernelpack.kernel.jit import NUMBER_TYPES
from kernelpack.kernel.types import dtype


def entries_of(value: Any) -> Sequence[Any] | None:
    """Returns what a tuple or an aggregate consists of; None for other values."""
    if isinstance(value, tuple):
        return value
    return [getattr(value, name) for name in value.fields] if isinstance(value, user_aggregate) else None


def class_of(value: Any) -> type | None:
    """Returns the class of a named tuple or an aggregate; None for other tuples."""
    return type(value) if not isinstance(value, tuple) or hasattr(value, "_fields") else None


def part_names(of: type | None, count: int) -> Sequence[str]:
    """Returns what the parts of a tuple or an aggregate are called: as the fields of its class, or by number."""
    if of is None:
        return [str(number) for number in range(count)]
    made: Any = of
    return list(made.fields if issubclass(of, user_aggregate) else made._fields)


@functools.cache
def number_types(of: type) -> tuple[str | None, ...]:
    """Returns for each field of a class the type in a signature that its annotation asks of a number (`row: tl.int64`), None if it asks
    for none."""
    names = part_names(of, 0)
    try:
        annotations = typing.get_type_hints(of)
    except Exception:  # names that its module does not have: they are text to everybody
        return (None,) * len(names)
    found = (annotations.get(name) for name in names)
    return tuple(NUMBER_TYPES.get(kind.name) if isinstance(kind, dtype) else None for kind in found)
