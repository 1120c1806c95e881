"""What names stand for while a function is compiled, and how values that consist of several IR values come apart.

A value is a `tensor` (known at run time), a tuple or an aggregate of values, or any other Python object (known at compile time).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kernelpack.kernel.aggregates import user_aggregate
from kernelpack.kernel.types import dtype
from kernelpack.kernel.values import aggregate, same_tuple, tensor

Scope = dict[str, Any]


@dataclass(frozen=True)
class Undefined:
    """A name that was assigned, but has no value here; `reason` completes "x has no value here: ..."."""

    reason: str
    cure: str


def tensors_in(value: Any) -> Iterator[tensor]:
    """Yields the run-time values that a value consists of, in order."""
    if isinstance(value, tensor):
        yield value
    else:
        for entry in parts_of(value):
            yield from tensors_in(entry)


def parts_of(value: Any) -> tuple[Any, ...]:
    """Returns the values that a tuple or an aggregate consists of; none for anything else."""
    if isinstance(value, aggregate):
        return tuple(value.parts().values())
    return value if isinstance(value, tuple) else ()


def with_parts(value: Any, parts: Iterable[Any]) -> Any:
    """Returns a tuple, a named tuple or an aggregate of the same kind that consists of other values."""
    if isinstance(value, aggregate):
        return value.with_parts(tuple(parts))
    return same_tuple(value, parts)


def replace_tensors(value: Any, replace: Callable[[tensor], tensor]) -> Any:
    """Returns a value of the same structure with every run-time value replaced, in order."""
    if isinstance(value, tensor):
        return replace(value)
    if isinstance(value, (tuple, aggregate)):
        return with_parts(value, [replace_tensors(entry, replace) for entry in parts_of(value)])
    return value


def same_structure(a: Any, b: Any) -> bool:
    """Whether two values differ in nothing but their run-time values, whose types agree."""
    if isinstance(a, tensor) or isinstance(b, tensor):
        return isinstance(a, tensor) and isinstance(b, tensor) and a.type == b.type
    if isinstance(a, (tuple, aggregate)) or isinstance(b, (tuple, aggregate)):
        return same_kind(a, b) and all(same_structure(x, y) for x, y in zip(parts_of(a), parts_of(b), strict=True))
    return same_constant(a, b)


def same_kind(a: Any, b: Any) -> bool:
    """Whether two values are tuples of one length, or aggregates of one type."""
    if isinstance(a, aggregate) or isinstance(b, aggregate):
        return isinstance(a, aggregate) and isinstance(b, aggregate) and a.type == b.type
    return isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b)


def same_constant(a: Any, b: Any) -> bool:
    """Whether two compile-time values are the same: 1, 1.0 and True differ, NaN equals itself, 0.0 and -0.0 differ."""
    return a is b or (type(a) is type(b) and a == b and repr(a) == repr(b)) or (a != a and b != b and type(a) is type(b))


def describe_type(value: Any) -> str:
    """Returns the type of a run-time value, or a compile-time value, for messages."""
    if isinstance(value, (tensor, aggregate)):
        return str(value.type)
    if isinstance(value, tuple):
        return f"({', '.join(map(describe_type, value))})"
    return f"the compile-time value {value!r}"


def mangle(value: Any) -> str:
    """Returns a text that tells apart the arguments for which a function must be compiled separately."""
    if isinstance(value, user_aggregate):
        return f"{value.type.mangle()}_{'_'.join(map(mangle, parts_of(value)))}"
    if isinstance(value, (tensor, aggregate)):
        return value.type.mangle()
    if isinstance(value, tuple):
        return f"T{'_'.join(map(mangle, value))}T"
    if isinstance(value, dtype):
        return f"c{value.mangle()}"
    return f"c{getattr(value, '__name__', None) or repr(value)}"


def assign_name(value: Any, name: str) -> None:
    """Gives IR values that have no name yet the name of the variable they are assigned to. The parts of an aggregate have none."""
    if isinstance(value, aggregate):
        return
    for entry in tensors_in(value):
        if not entry.handle.name:
            entry.handle.name = name
