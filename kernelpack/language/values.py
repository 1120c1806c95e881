"""What names stand for inside a kernel: run-time tensors. Outside: constexpr, which marks what is known at compile time."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from kernelpack.errors import CompilationError
from kernelpack.ir.core import Value
from kernelpack.language.types import block_type, dtype


class constexpr:
    """A compile-time constant: as an annotation of a kernel's parameter or variable, or as a global that kernels may read.

    Operators give a constexpr of the result. Inside kernels a constexpr is its value.
    """

    def __init__(self, value: Any) -> None:
        self.value = unwrap(value)

    def __repr__(self) -> str:
        return f"constexpr[{self.value!r}]"

    def __hash__(self) -> int:
        return hash((constexpr, self.value))

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return operator.index(self.value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.value(*args, **kwargs)

    def __getitem__(self, index: Any) -> constexpr:
        return constexpr(self.value[unwrap(index)])

    def __eq__(self, other: object) -> Any:  # like every other operator: a constexpr of the result
        return constexpr(self.value == unwrap(other))

    def __ne__(self, other: object) -> Any:
        return constexpr(self.value != unwrap(other))


def unwrap(value: Any) -> Any:
    """Returns the value of a constexpr, and anything else itself."""
    return value.value if isinstance(value, constexpr) else value


def _add_operators() -> None:
    """Gives constexpr Python's operators, all by the same rule."""

    def forward(name: str) -> Callable[[constexpr, Any], constexpr]:
        apply = getattr(operator, name)
        return lambda self, other: constexpr(apply(self.value, unwrap(other)))

    def reflected(name: str) -> Callable[[constexpr, Any], constexpr]:
        apply = getattr(operator, name)
        return lambda self, other: constexpr(apply(unwrap(other), self.value))

    def unary(name: str) -> Callable[[constexpr], constexpr]:
        apply = getattr(operator, name)
        return lambda self: constexpr(apply(self.value))

    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and", "or", "xor"):
        setattr(constexpr, f"__{name}__", forward(f"__{name}__"))
        setattr(constexpr, f"__r{name}__", reflected(f"__{name}__"))
    for name in ("lt", "le", "gt", "ge"):
        setattr(constexpr, f"__{name}__", forward(f"__{name}__"))
    for name in ("neg", "pos", "invert"):
        setattr(constexpr, f"__{name}__", unary(f"__{name}__"))


_add_operators()


class tensor:
    """A run-time value of a kernel: a scalar, a pointer, or a tile of either. Wraps the IR value with the signed type.

    Its operators and methods exist inside kernels only, where the front end gives them their meaning
    (frontend/expressions.py for operators; `METHODS` in language/builtin.py for methods).
    """

    __slots__ = ("handle", "type")

    def __init__(self, handle: Value, type: dtype) -> None:
        self.handle = handle
        self.type = type

    @property
    def dtype(self) -> dtype:
        """The type of an element."""
        return self.type.scalar

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape; () of a scalar."""
        return self.type.shape if isinstance(self.type, block_type) else ()

    @property
    def numel(self) -> int:
        """The number of elements."""
        return self.type.numel if isinstance(self.type, block_type) else 1

    def __bool__(self) -> bool:
        raise CompilationError("a run-time value has no truth value at compile time")

    def __repr__(self) -> str:
        return f"tensor[{self.type}]"
