"""What names stand for inside a kernel: run-time tensors. Outside: constexpr, which marks what is known at compile time."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from types import MethodType
from typing import Any, ClassVar, TypeVar, cast

from kernelpack.errors import CompilationError
from kernelpack.ir.core import Value
from kernelpack.kernel.builtin import builtin_signature
from kernelpack.kernel.callables import JITCallable
from kernelpack.kernel.structured_types import block_pointer_type, tensor_descriptor_type
from kernelpack.kernel.types import block_type, dtype, pointer_type


class constexpr:
    """A compile-time constant: as an annotation of a kernel's parameter or variable, or as a global that kernels may read.

    Operators give a constexpr of the result. Inside kernels a constexpr is its value; one of a plain Python function can be called
    there with compile-time values, as a @constexpr_function.
    """

    def __init__(self, value: Any) -> None:
        plain = inspect.isfunction(value) and builtin_signature(value) is None
        self.value = constexpr_function(value) if plain else unwrap(value)

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


F = TypeVar("F", bound=Callable[..., Any])


class ConstexprFunction(JITCallable):
    """What @constexpr_function makes of a function, or of a method of an aggregate."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*map(unwrap, args), **{name: unwrap(value) for name, value in kwargs.items()})

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)


def constexpr_function(fn: F) -> F:
    """Decorator: lets kernels call a Python function on compile-time values. Python gets what the function returns, as it is."""
    return cast(F, ConstexprFunction(fn))


def is_constexpr_function(value: object) -> bool:
    """Whether a value is a @constexpr_function, or a method of an instance that is one."""
    return isinstance(getattr(value, "__func__", value), ConstexprFunction)


def same_tuple(value: tuple[Any, ...], entries: Iterable[Any]) -> Any:
    """Returns a tuple, a named one if `value` is, of other entries."""
    return type(value)(*entries) if hasattr(value, "_fields") else tuple(entries)


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


class aggregate:
    """A run-time value that consists of others. Values of equal `type` differ in nothing but their parts.

    Inside kernels it has the `attributes` named, and `methods`: functions of the language that take it first.
    """

    attributes: ClassVar[tuple[str, ...]] = ()
    methods: ClassVar[dict[str, Any]] = {}
    type: dtype

    def parts(self) -> dict[str, Any]:
        """Returns what the value consists of, by name."""
        raise NotImplementedError

    def with_parts(self, parts: Sequence[Any]) -> aggregate:
        """Returns a value of the same type that consists of others, in the order of `parts`."""
        raise NotImplementedError


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


class tensor_descriptor(aggregate):
    """A tensor in global memory, read and written a block at a time by the coordinates of the block's first element.

    `shape` holds int32 sizes, `strides` int64 distances in elements; the last stride is always 1, and no part of the value.
    """

    attributes = ("block_shape", "block_type", "dtype", "shape", "strides", "type")
    methods: ClassVar[dict[str, Any]] = {}

    def __init__(self, type: tensor_descriptor_type, base: tensor, shape: Sequence[tensor], strides: Sequence[tensor]) -> None:
        self.type: tensor_descriptor_type = type
        self.base = base
        self.shape = tuple(shape)
        self.outer_strides = tuple(strides)

    @property
    def dtype(self) -> dtype:
        return self.type.element_ty

    @property
    def block_type(self) -> block_type:
        return self.type.block_type

    @property
    def block_shape(self) -> tuple[int, ...]:
        return self.type.block_type.shape

    @property
    def strides(self) -> tuple[Any, ...]:
        return (*self.outer_strides, 1)

    def parts(self) -> dict[str, Any]:
        sizes = {f"shape_{axis}": size for axis, size in enumerate(self.shape)}
        return {"base": self.base, **sizes, **{f"stride_{axis}": step for axis, step in enumerate(self.outer_strides)}}

    def with_parts(self, parts: Sequence[Any]) -> tensor_descriptor:
        rank = len(self.shape)
        return tensor_descriptor(self.type, parts[0], parts[1 : 1 + rank], parts[1 + rank :])

    def __repr__(self) -> str:
        return f"tensor_descriptor[{self.type}]"


class block_pointer(aggregate):
    """A pointer to a block of a tensor: base, int64 sizes and strides in elements, and the int32 coordinates of its first element."""

    attributes = ("block_type", "dtype", "type")
    methods: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        type: block_pointer_type,
        base: tensor,
        sizes: Sequence[tensor],
        strides: Sequence[tensor],
        offsets: Sequence[tensor],
    ) -> None:
        self.type: block_pointer_type = type
        self.base = base
        self.sizes = tuple(sizes)
        self.strides = tuple(strides)
        self.offsets = tuple(offsets)

    @property
    def dtype(self) -> pointer_type:
        return pointer_type(self.type.block_type)

    @property
    def block_type(self) -> block_type:
        return self.type.block_type

    def parts(self) -> dict[str, Any]:
        groups = {"size": self.sizes, "stride": self.strides, "offset": self.offsets}
        return {"base": self.base} | {f"{name}_{axis}": v for name, group in groups.items() for axis, v in enumerate(group)}

    def with_parts(self, parts: Sequence[Any]) -> block_pointer:
        rank = len(self.sizes)
        base, *rest = parts
        return block_pointer(self.type, base, rest[:rank], rest[rank : 2 * rank], rest[2 * rank :])

    def __repr__(self) -> str:
        return f"block_pointer[{self.type}]"
