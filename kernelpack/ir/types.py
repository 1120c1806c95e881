"""IR types: scalars, pointers, tensors. Frozen, hashable, printed in Triton's form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


class Type:
    """Base of all IR types. `str()` gives the text form."""


class Encoding:
    """How a tensor's elements are spread over hardware (ttgir). `str()` gives the attribute text, e.g. `#ttg.linear<...>`.

    Modules print each encoding once, under a name made of `alias`.
    """

    alias: ClassVar[str] = "encoding"


@dataclass(frozen=True)
class IntegerType(Type):
    """A signless integer of `width` bits; operations, not types, are signed or unsigned."""

    width: int

    def __str__(self) -> str:
        return f"i{self.width}"


@dataclass(frozen=True)
class FloatType(Type):
    """A floating-point type. `exponent` and `mantissa` are the numbers of stored bits."""

    name: str
    width: int
    exponent: int
    mantissa: int

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class PointerType(Type):
    """A pointer to `pointee` in an address space (1: global, 3: shared)."""

    pointee: Type
    address_space: int = 1

    def __str__(self) -> str:
        space = "" if self.address_space == 1 else f", {self.address_space}"
        return f"!tt.ptr<{self.pointee}{space}>"


@dataclass(frozen=True)
class TensorType(Type):
    """A tile: static power-of-two `shape`, scalar or pointer `element`, and in ttgir an `encoding`."""

    shape: tuple[int, ...]
    element: Type
    encoding: Encoding | None = None

    def __str__(self) -> str:
        encoding = f", {self.encoding}" if self.encoding is not None else ""
        return f"tensor<{'x'.join(map(str, self.shape))}x{self.element}{encoding}>"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count


@dataclass(frozen=True)
class MemDescType(Type):
    """A view of shared memory (ttgir): shape, element, encoding, and whether it may be written."""

    shape: tuple[int, ...]
    element: Type
    encoding: Encoding
    mutable: bool = False

    def __str__(self) -> str:
        mutable = ", mutable" if self.mutable else ""
        return f"!ttg.memdesc<{'x'.join(map(str, self.shape))}x{self.element}, {self.encoding}, #ttg.shared_memory{mutable}>"


@dataclass(frozen=True)
class TensorDescType(Type):
    """A tensor in global memory that is read and written a `block` at a time, by the coordinates of the block's first element."""

    block: TensorType

    def __str__(self) -> str:
        return f"!tt.tensordesc<{self.block}>"


@dataclass(frozen=True)
class TokenType(Type):
    """Orders asynchronous operations (ttgir)."""

    def __str__(self) -> str:
        return "!ttg.async.token"


@dataclass(frozen=True)
class FunctionType(Type):
    """What a function takes and returns."""

    inputs: tuple[Type, ...]
    results: tuple[Type, ...]

    def __str__(self) -> str:
        results = ", ".join(map(str, self.results))
        return f"({', '.join(map(str, self.inputs))}) -> " + (results if len(self.results) == 1 else f"({results})")


I1, I8, I16, I32, I64 = INTEGERS = tuple(IntegerType(width) for width in (1, 8, 16, 32, 64))
F16 = FloatType("f16", 16, 5, 10)
BF16 = FloatType("bf16", 16, 8, 7)
F32 = FloatType("f32", 32, 8, 23)
F64 = FloatType("f64", 64, 11, 52)
F8E4M3FN = FloatType("f8E4M3FN", 8, 4, 3)
F8E5M2 = FloatType("f8E5M2", 8, 5, 2)
F8E4M3FNUZ = FloatType("f8E4M3FNUZ", 8, 4, 3)
F8E5M2FNUZ = FloatType("f8E5M2FNUZ", 8, 5, 2)
F8E4M3B15 = FloatType("f8E4M3B15", 8, 4, 3)
FLOATS = {kind.name: kind for kind in (F16, BF16, F32, F64, F8E4M3FN, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ, F8E4M3B15)}
TOKEN = TokenType()


def element_of(kind: Type) -> Type:
    """Returns the element type of a tensor or memory descriptor, and any other type itself."""
    return kind.element if isinstance(kind, (TensorType, MemDescType)) else kind


def shape_of(kind: Type) -> tuple[int, ...]:
    """Returns the shape; () for a scalar."""
    return kind.shape if isinstance(kind, (TensorType, MemDescType)) else ()


def with_element(kind: Type, element: Type) -> Type:
    """Returns `kind` with another element type: a tensor keeps shape and encoding, a scalar becomes `element`."""
    return TensorType(kind.shape, element, kind.encoding) if isinstance(kind, TensorType) else element


def with_shape(kind: Type, shape: tuple[int, ...], encoding: Encoding | None = None) -> Type:
    """Returns a tensor of `kind`'s element with another shape; a rank-0 shape gives the scalar."""
    element = element_of(kind)
    return TensorType(shape, element, encoding) if shape else element


def bit_width(kind: Type) -> int:
    """Returns the width in bits of a scalar or of a tensor's element; pointers have 64."""
    element = element_of(kind)
    if isinstance(element, (IntegerType, FloatType)):
        return element.width
    if isinstance(element, PointerType):
        return 64
    raise TypeError(f"{kind} has no bit width")


def is_int(kind: Type) -> bool:
    return isinstance(element_of(kind), IntegerType)


def is_float(kind: Type) -> bool:
    return isinstance(element_of(kind), FloatType)


def is_pointer(kind: Type) -> bool:
    return isinstance(element_of(kind), PointerType)
