"""The types of what is no number, pointer or tile: tensor descriptors, block pointers, compile-time values, tuples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelpack.ir import types as ir
from kernelpack.ir.core import Builder
from kernelpack.kernel.types import block_type, compound_type, dtype


class tensor_descriptor_type(compound_type):
    """A descriptor of a tensor that is read and written in blocks of `block_shape`. `padding` is what lies outside: zero or nan."""

    def __new__(cls, element_ty: dtype, block_shape: Sequence[int], padding: str = "zero") -> tensor_descriptor_type:
        self = object.__new__(cls)
        self.block_type = block_type(element_ty, block_shape)
        self.padding = padding
        more = "" if padding == "zero" else f", {padding}"
        self.name = f"tensordesc<{element_ty}{list(self.block_type.shape)}{more}>"
        return self

    block_type: block_type
    padding: str

    def _parts(self) -> tuple[object, ...]:
        return self.element_ty, self.block_type.shape, self.padding

    @property
    def element_ty(self) -> dtype:
        return self.block_type.element_ty

    def to_ir(self) -> ir.Type:
        block = self.block_type.to_ir()
        assert isinstance(block, ir.TensorType)
        return ir.TensorDescType(block)

    def mangle(self) -> str:
        return f"D{self.block_type.mangle()}{self.padding}"


class indexed_type(dtype):
    """A type that says itself what attributes and indices of its values mean."""

    def attribute(self, b: Builder, value: Any, name: str) -> Any:
        """Returns `value.name`. Raises CompilationError where there is no such attribute."""
        raise NotImplementedError

    def index(self, b: Builder, value: Any, keys: Sequence[Any]) -> Any:
        """Returns `value[keys]`. Raises CompilationError for keys that mean nothing."""
        raise NotImplementedError


class block_pointer_type(compound_type):
    """A pointer to a block of a tensor: as `dtype` it is a pointer to tiles of `block_type`."""

    def __new__(cls, element_ty: dtype, block_shape: Sequence[int], rank_order: Sequence[int]) -> block_pointer_type:
        self = object.__new__(cls)
        self.block_type = block_type(element_ty, block_shape)
        self.order = tuple(rank_order)
        self.name = f"block_pointer<{element_ty}{list(self.block_type.shape)}>"
        return self

    block_type: block_type
    order: tuple[int, ...]

    def _parts(self) -> tuple[object, ...]:
        return self.element_ty, self.block_type.shape, self.order

    @property
    def element_ty(self) -> dtype:
        return self.block_type.element_ty

    def mangle(self) -> str:
        return f"B{self.block_type.mangle()}"


class constexpr_type(compound_type):
    """The type of a compile-time value: the value itself."""

    def __new__(cls, value: object) -> constexpr_type:
        self = object.__new__(cls)
        self.value = value
        self.name = f"constexpr[{value!r}]"
        self.primitive_bitwidth = 0
        return self

    value: object

    def _parts(self) -> tuple[object, ...]:
        return (self.value,)

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and isinstance(other, constexpr_type) and type(self.value) is type(other.value)

    __hash__ = compound_type.__hash__


class tuple_type(compound_type):
    """The type of a tuple: the types of its entries, and the names of a named tuple's."""

    def __new__(cls, types: Sequence[dtype], fields: Sequence[str] | None = None) -> tuple_type:
        self = object.__new__(cls)
        self.types = tuple(types)
        self.fields = None if fields is None else tuple(fields)
        self.name = f"({', '.join(map(str, self.types))})"
        self.primitive_bitwidth = 0
        return self

    types: tuple[dtype, ...]
    fields: tuple[str, ...] | None

    def _parts(self) -> tuple[object, ...]:
        return self.types, self.fields
