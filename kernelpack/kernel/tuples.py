"""tl.tuple: the name that host code and annotations have for tuples of kernel values."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

__all__ = ["tuple"]


class _AnyTuple(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.tuple)


class tuple(builtins.tuple[Any, ...], metaclass=_AnyTuple):
    """A tuple of values. Python's own tuples are instances, too: kernels do not tell them apart."""

    def __new__(cls, args: Sequence[Any] = ()) -> tuple:
        return super().__new__(cls, args)
