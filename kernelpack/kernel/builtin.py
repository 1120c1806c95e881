"""How functions become part of the language: the `builtin` decorator, and the table of methods of tensors."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from kernelpack.errors import CompilationError
from kernelpack.ir.core import Builder, Value
from kernelpack.options import Options

F = TypeVar("F", bound=Callable[..., Any])


class Generator(Protocol):
    """What a builtin may ask of the front end: a place to create operations, and the body of a kernel function put there."""

    builder: Builder
    debug: bool
    checks_overflow: bool
    num_warps: int | None
    options: Options

    def inline(self, function: Any, args: Sequence[Any]) -> Any:
        """Generates the body of a @jit function in place and returns what it returns."""

    def promise(self, value: Value, attribute: str, promised: tuple[int, ...]) -> None:
        """Notes what the user promises of a value, one number an axis, where analyses find it."""


METHODS: dict[str, Any] = {}
"""The functions of the language that are methods of tensors too: `x.sum(0)` is `sum(x, 0)`."""


def builtin(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a Python function part of the language.

    It is called while a kernel is compiled, with compile-time values as they are, run-time values as `tensor`, and
    `_generator`. Calling it anywhere else raises CompilationError.
    """
    signature = inspect.signature(function)
    public = [parameter for parameter in signature.parameters.values() if parameter.name != "_generator"]

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if "_semantic" in kwargs:  # how functions of other packages, which run while kernels compile, hand it on
            kwargs["_generator"] = kwargs.pop("_semantic")
        if kwargs.get("_generator") is None:
            raise CompilationError(
                f"{function.__name__} is part of the kernel language and can only be called inside a @jit function"
            )
        return function(*args, **kwargs)

    vars(wrapper)["__kernelpack_signature__"] = signature.replace(parameters=public)
    return wrapper


def builtin_signature(function: Any) -> inspect.Signature | None:
    """Returns the signature that kernels see of a builtin, or None for anything else."""
    return getattr(function, "__kernelpack_signature__", None)


def member(function: F) -> F:
    """Makes a builtin or @jit function a method of tensors as well."""
    METHODS[function.__name__] = function
    return function


class BoundMethod:
    """A method of a run-time value, looked up but not yet called."""

    __slots__ = ("function", "self")

    def __init__(self, function: Any, self_: Any) -> None:
        self.function = function
        self.self = self_
