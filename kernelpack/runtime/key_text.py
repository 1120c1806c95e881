"""Compile-time values as JSON, in Triton's form where it has one. It names functions and classes that the process has; reading imports none,
and runs nothing else."""

from __future__ import annotations

import enum
import sys
from collections.abc import Mapping
from typing import Any

from kernelpack.frontend.expressions import is_constructor
from kernelpack.kernel.aggregates import user_aggregate
from kernelpack.kernel.jit import KNOWN, JITFunction
from kernelpack.kernel.types import compound_type, dtype
from kernelpack.tools.tensor_descriptor import TensorDescriptor


def as_json(value: Any) -> Any:
    """Returns a value as what JSON can say. Raises TypeError for one that it cannot: a class inside a function, a module, ..."""
    if type(value) is str and dtype.is_dtype(value):
        return {"constexpr": value}
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is tuple:
        return [as_json(entry) for entry in value]
    if type(value) is dtype:
        return value.name
    if isinstance(value, JITFunction):
        return {"jit_function": f"{value.module}:{value.fn.__qualname__}"}
    if isinstance(value, enum.Enum):
        return {"member": value.name, "class": _name_of(type(value))}
    if isinstance(value, type) or is_constructor(value):
        return {"class": _name_of(value)}
    return {"parts": [as_json(part) for part in _parts(value)], "class": _name_of(type(value))}


def from_json(written: Any) -> Any:
    """Returns the value that as_json wrote. Raises LookupError for a function or class that this process does not have, ValueError and
    TypeError for anything else."""
    if isinstance(written, list):
        return tuple(map(from_json, written))
    if not isinstance(written, Mapping):
        return dtype(written) if isinstance(written, str) and dtype.is_dtype(written) else written
    match dict(written):
        case {"constexpr": str(text)}:
            return text
        case {"jit_function": name}:
            return _function(name)
        case {"member": member, "class": name}:
            return _enumeration(name)[member]
        case {"parts": parts, "class": name}:
            return _made(_found(name), [from_json(part) for part in parts])
        case {"class": name}:
            return _found(name)
    raise ValueError(f"{written!r} says nothing")


def _parts(value: Any) -> list[Any]:
    """Returns what `_made` makes a value of."""
    if isinstance(value, compound_type):
        return list(value._parts())
    if isinstance(value, user_aggregate):
        return list(value.parts().values())
    if isinstance(value, tuple) and is_constructor(type(value)):
        return list(value)
    raise TypeError(f"{value!r} cannot be written down")


def _made(kind: Any, parts: list[Any]) -> Any:
    return kind.of_parts(parts) if issubclass(kind, user_aggregate) else kind(*parts)


def _function(name: str) -> JITFunction:
    if name not in KNOWN:
        raise LookupError(f"it names {name}, which this process does not know: import it first")
    return KNOWN[name]


def _name_of(value: Any) -> str:
    name = f"{value.__module__}:{value.__qualname__}"
    if _looked_up(name) is not value:
        raise TypeError(f"{value!r} cannot be written down: no module has it under its name")
    return name


def _looked_up(name: str) -> Any:
    """Returns what a module of this process has under a name, None if there is none."""
    module, _, path = name.partition(":")
    found = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _found(name: str) -> Any:
    """Returns a class that keys may name, and no other."""
    found = _looked_up(name)
    is_type = isinstance(found, type) and (found in (tuple, TensorDescriptor) or issubclass(found, dtype))
    if not is_type and not is_constructor(found):
        raise LookupError(f"it names {name}, which is no type of arguments in this process: import it first")
    return found


def _enumeration(name: str) -> Any:
    found = _looked_up(name)
    if not (isinstance(found, type) and issubclass(found, enum.Enum)):
        raise LookupError(f"it names {name}, which is no enumeration in this process: import it first")
    return found
