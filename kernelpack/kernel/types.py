"""The types of the language: scalars with a sign, pointers, tiles. Names and queries are those of triton.language."""

from __future__ import annotations

import abc
import enum
from collections.abc import Sequence
from typing import ClassVar

from kernelpack.errors import CompilationError
from kernelpack.ir import types as ir

TRITON_MAX_TENSOR_NUMEL = 1 << 20
"""The elements that a tile may have at most."""


class Kind(enum.IntEnum):
    """The kinds of numbers in the order in which they promote."""

    BOOLEAN = 0
    INTEGRAL = 1
    FLOATING = 2


class Signedness(enum.Enum):
    SIGNED = 0
    UNSIGNED = 1


# name: (bits, stored mantissa bits, exponent bias, IR type)
_FLOATS: dict[str, tuple[int, int, int, ir.Type | None]] = {
    "fp8e4b15": (8, 3, 15, ir.F8E4M3B15),
    "fp8e4nv": (8, 3, 7, ir.F8E4M3FN),
    "fp8e4b8": (8, 3, 8, ir.F8E4M3FNUZ),
    "fp8e5": (8, 2, 15, ir.F8E5M2),
    "fp8e5b16": (8, 2, 16, ir.F8E5M2FNUZ),
    "fp16": (16, 10, 15, ir.F16),
    "bf16": (16, 7, 127, ir.BF16),
    "fp32": (32, 23, 127, ir.F32),
    "fp64": (64, 52, 1023, ir.F64),
}
_SIGNED = {f"int{width}": width for width in (8, 16, 32, 64)}
_UNSIGNED = {"int1": 1} | {f"uint{width}": width for width in (8, 16, 32, 64)}


class dtype:
    """A scalar type: int1, int8 ... int64, uint8 ... uint64, fp16, bf16, fp32, fp64, fp8*, void. One object a type."""

    KIND = Kind
    SIGNEDNESS = Signedness
    SINT_TYPES = tuple(_SIGNED)
    UINT_TYPES = tuple(_UNSIGNED)
    FP_TYPES = tuple(_FLOATS)
    STANDARD_FP_TYPES = ("fp16", "bf16", "fp32", "fp64")
    OTHER_TYPES = ("void",)

    _known: ClassVar[dict[str, dtype]] = {}
    name: str
    primitive_bitwidth: int
    int_bitwidth: int
    int_signedness: Signedness
    fp_mantissa_width: int
    exponent_bias: int

    def __new__(cls, name: str) -> dtype:
        if cls is not dtype:
            return object.__new__(cls)
        found = cls._known.get(name)
        if found is None:
            found = cls._known[name] = object.__new__(cls)
            found._fill(name)
        return found

    def _fill(self, name: str) -> None:
        self.name = name
        if name in _FLOATS:
            self.primitive_bitwidth, self.fp_mantissa_width, self.exponent_bias, _ = _FLOATS[name]
        elif name in _SIGNED or name in _UNSIGNED:
            self.int_signedness = Signedness.SIGNED if name in _SIGNED else Signedness.UNSIGNED
            self.int_bitwidth = self.primitive_bitwidth = (_SIGNED | _UNSIGNED)[name]
        elif name == "void":
            self.primitive_bitwidth = 0
        else:
            del dtype._known[name]
            raise CompilationError(
                f"there is no dtype {name!r}",
                cure=f"use one of {', '.join((*dtype.SINT_TYPES, *dtype.UINT_TYPES, *dtype.FP_TYPES))}",
            )

    def __reduce__(self) -> tuple[object, ...]:
        return dtype, (self.name,)

    @staticmethod
    def is_dtype(text: str) -> bool:
        """Whether a text is the name of a scalar type."""
        return text in (*dtype.SINT_TYPES, *dtype.UINT_TYPES, *dtype.FP_TYPES, *dtype.OTHER_TYPES)

    # ---- queries ----

    def is_fp8(self) -> bool:
        return self.name.startswith("fp8")

    def is_fp8e4nv(self) -> bool:
        return self.name == "fp8e4nv"

    def is_fp8e4b8(self) -> bool:
        return self.name == "fp8e4b8"

    def is_fp8e4b15(self) -> bool:
        return self.name == "fp8e4b15"

    def is_fp8e5(self) -> bool:
        return self.name == "fp8e5"

    def is_fp8e5b16(self) -> bool:
        return self.name == "fp8e5b16"

    def is_fp16(self) -> bool:
        return self.name == "fp16"

    def is_bf16(self) -> bool:
        return self.name == "bf16"

    def is_fp32(self) -> bool:
        return self.name == "fp32"

    def is_fp64(self) -> bool:
        return self.name == "fp64"

    def is_int1(self) -> bool:
        return self.name == "int1"

    def is_int8(self) -> bool:
        return self.name == "int8"

    def is_int16(self) -> bool:
        return self.name == "int16"

    def is_int32(self) -> bool:
        return self.name == "int32"

    def is_int64(self) -> bool:
        return self.name == "int64"

    def is_uint8(self) -> bool:
        return self.name == "uint8"

    def is_uint16(self) -> bool:
        return self.name == "uint16"

    def is_uint32(self) -> bool:
        return self.name == "uint32"

    def is_uint64(self) -> bool:
        return self.name == "uint64"

    def is_bool(self) -> bool:
        return self.is_int1()

    def is_floating(self) -> bool:
        return self.name in _FLOATS

    def is_standard_floating(self) -> bool:
        return self.name in dtype.STANDARD_FP_TYPES

    def is_int_signed(self) -> bool:
        return self.name in _SIGNED

    def is_int_unsigned(self) -> bool:
        return self.name in _UNSIGNED

    def is_int(self) -> bool:
        return self.is_int_signed() or self.is_int_unsigned()

    def is_void(self) -> bool:
        return self.name == "void"

    def is_block(self) -> bool:
        return False

    def is_ptr(self) -> bool:
        return False

    def is_const(self) -> bool:
        return False

    def kind(self) -> Kind:
        """Returns the kind of number: boolean, integral or floating."""
        if self.is_bool():
            return Kind.BOOLEAN
        return Kind.FLOATING if self.is_floating() else Kind.INTEGRAL

    def get_int_max_value(self) -> int:
        if self.is_int_signed():
            return (1 << self.int_bitwidth - 1) - 1
        return (1 << self.int_bitwidth) - 1

    def get_int_min_value(self) -> int:
        return -(1 << self.int_bitwidth - 1) if self.is_int_signed() else 0

    @property
    def itemsize(self) -> int:
        """The size in bytes."""
        return (self.primitive_bitwidth + 7) // 8

    @property
    def scalar(self) -> dtype:
        """The type of one element: of a tile its element, of everything else itself."""
        return self

    # ---- the IR ----

    def to_ir(self) -> ir.Type:
        """Returns the IR type. Raises CompilationError for types that no operation supports."""
        if self.is_int():
            return ir.IntegerType(self.int_bitwidth)
        found = _FLOATS[self.name][3] if self.name in _FLOATS else None
        if found is None:
            raise CompilationError(f"values of type {self} are not supported", cure="use float8e4nv or float8e5")
        return found

    def mangle(self) -> str:
        """Returns the type as a part of a symbol name."""
        return self.name.replace("uint", "u").replace("int", "i")

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"tl.{self.name.replace('bf', 'bfloat') if self.is_bf16() else self.name.replace('fp', 'float')}"


class compound_type(dtype):
    """A type that is made of parts: equal parts make equal types."""

    @abc.abstractmethod
    def _parts(self) -> tuple[object, ...]:
        """Returns the arguments that make the type."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._parts()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, compound_type) and type(other) is type(self) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash((type(self), self._parts()))

    def __repr__(self) -> str:
        return self.name


class pointer_type(compound_type):
    """A pointer to `element_ty`; loads through a const pointer only."""

    def __new__(cls, element_ty: dtype, address_space: int = 1, const: bool = False) -> pointer_type:
        self = object.__new__(cls)
        if not isinstance(element_ty, dtype):
            raise CompilationError(f"a pointer points to a dtype, not to {element_ty!r}")
        self.element_ty = element_ty
        self.address_space = address_space
        self.const = const
        self.name = f"{'const_' if const else ''}pointer<{element_ty}>"
        self.primitive_bitwidth = 64
        return self

    element_ty: dtype
    address_space: int
    const: bool

    def _parts(self) -> tuple[object, ...]:
        return self.element_ty, self.address_space, self.const

    def is_ptr(self) -> bool:
        return True

    def is_const(self) -> bool:
        return self.const

    def to_ir(self) -> ir.Type:
        return ir.PointerType(self.element_ty.to_ir(), self.address_space)

    def mangle(self) -> str:
        return f"{'k' if self.const else ''}P{self.element_ty.mangle()}"


class block_type(compound_type):
    """A tile: `element_ty` and a static `shape` of powers of two."""

    def __new__(cls, element_ty: dtype, shape: Sequence[int]) -> block_type:
        self = object.__new__(cls)
        self.element_ty = element_ty
        self.shape = check_shape(shape)
        if not self.shape:
            raise CompilationError("a tile has at least one dimension")
        self.numel = 1
        for extent in self.shape:
            self.numel *= extent
        self.name = f"<{list(self.shape)}, {element_ty}>"
        return self

    element_ty: dtype
    shape: tuple[int, ...]
    numel: int

    def _parts(self) -> tuple[object, ...]:
        return self.element_ty, self.shape

    def is_block(self) -> bool:
        return True

    def get_block_shapes(self) -> tuple[int, ...]:
        return self.shape

    def with_element_ty(self, element_ty: dtype) -> block_type:
        return block_type(element_ty, self.shape)

    @property
    def scalar(self) -> dtype:
        return self.element_ty

    def to_ir(self) -> ir.Type:
        return ir.TensorType(self.shape, self.element_ty.to_ir())

    def mangle(self) -> str:
        return f"{self.element_ty.mangle()}x{'x'.join(map(str, self.shape))}"


def check_shape(shape: Sequence[object]) -> tuple[int, ...]:
    """Returns a shape as ints. Raises CompilationError where an extent is no compile-time power of two, or the tile too big."""
    extents: list[int] = []
    count = 1
    for index, extent in enumerate(shape):
        if isinstance(extent, bool) or not isinstance(extent, int):
            raise CompilationError(
                f"extent {index} of a shape must be a compile-time integer, is {describe(extent)}",
                cure="take it from a tl.constexpr parameter, or annotate the variable: `x: tl.constexpr = ...`",
            )
        if extent < 1 or extent & (extent - 1):
            raise CompilationError(
                f"extent {index} of the shape {list(shape)} is {extent}; extents must be powers of two",
                cure="round it up with next_power_of_2 and mask what lies beyond",
            ) from ValueError(f"Shape element {index} must be a power of 2")
        extents.append(extent)
        count *= extent
    if count > TRITON_MAX_TENSOR_NUMEL:
        raise CompilationError(
            f"a tile of shape {extents} has {count} elements, more than {TRITON_MAX_TENSOR_NUMEL}",
            cure="use smaller blocks, and a loop over them",
        )
    return tuple(extents)


def describe(value: object) -> str:
    """Returns a value as an error message shows it: the type of a run-time value, a compile-time value itself."""
    kind = getattr(value, "type", None)
    if isinstance(kind, dtype):
        return f"a run-time value of type {kind}"
    if isinstance(value, tuple):
        return f"({', '.join(map(describe, value))})"
    return repr(value)


void = dtype("void")
int1, int8, int16, int32, int64 = (dtype(f"int{width}") for width in (1, 8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (dtype(f"uint{width}") for width in (8, 16, 32, 64))
float8e4b15, float8e4nv, float8e4b8 = dtype("fp8e4b15"), dtype("fp8e4nv"), dtype("fp8e4b8")
float8e5, float8e5b16 = dtype("fp8e5"), dtype("fp8e5b16")
float16, bfloat16, float32, float64 = dtype("fp16"), dtype("bf16"), dtype("fp32"), dtype("fp64")

pi32_t = pointer_type(int32)


class const:
    """As an annotation: what this pointer points to is only read."""
