"""The encodings of ttgir types: a linear layout as an attribute that prints, parses and compares."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from kernelpack.ir.attribute_parser import ENCODINGS, AttributeParser
from kernelpack.ir.core import Value
from kernelpack.ir.types import Encoding, MemDescType, TensorType, Type
from kernelpack.layout.families import HARDWARE, PATTERN_BYTES, dims, swizzle_of, tma_tile
from kernelpack.layout.linear import Basis, LinearLayout


def _bases_text(layout: LinearLayout) -> str:
    return ", ".join(
        f"{name} = [{', '.join('[' + ', '.join(map(str, basis)) + ']' for basis in entries)}]" for name, entries in layout.ins
    )


@dataclass(frozen=True)
class LinearEncoding(Encoding):
    """Which thread holds which element of a tile: a surjective layout from register, lane, warp and block."""

    layout: LinearLayout
    alias: ClassVar[str] = "linear"

    @functools.cached_property
    def _text(self) -> str:
        return f"#ttg.linear<{{{_bases_text(self.layout)}}}>"

    def __str__(self) -> str:
        return self._text


@dataclass(frozen=True)
class SharedEncoding(Encoding):
    """Where an element of a tile lies in shared memory: a bijective layout from `offset`, counted in elements.

    The address of the tile is a multiple of `alignment` bytes.
    """

    layout: LinearLayout
    alignment: int = 16
    alias: ClassVar[str] = "shared"

    @functools.cached_property
    def _text(self) -> str:
        return f"#ttg.shared_linear<{{{_bases_text(self.layout)}}}, alignment = {self.alignment}>"

    def __str__(self) -> str:
        return self._text


def layout_of(kind: Type | Value) -> LinearLayout:
    """Returns the layout of a ttgir tensor or memory descriptor. Raises TypeError for what has none."""
    kind = kind.type if isinstance(kind, Value) else kind
    if isinstance(kind, (TensorType, MemDescType)) and isinstance(kind.encoding, (LinearEncoding, SharedEncoding)):
        return kind.encoding.layout
    raise TypeError(f"{kind} has no layout")


def with_layout(kind: Type, layout: LinearLayout) -> Type:
    """Returns a tensor type with another distributed layout; scalars stay as they are."""
    return TensorType(kind.shape, kind.element, LinearEncoding(layout)) if isinstance(kind, TensorType) else kind


def tma_encoding(
    shape: tuple[int, ...], bits: int, order: tuple[int, ...] | None = None, swizzle: int | None = None
) -> SharedEncoding:
    """Returns the encoding of a tile that TMA writes and wgmma reads: `tma_tile`, aligned to the swizzle's pattern."""
    fast = shape[-1 if order is None else order[0]]
    swizzle = swizzle_of(fast * bits // 8) if swizzle is None else swizzle
    return SharedEncoding(tma_tile(shape, bits, order, swizzle), max(8 * swizzle, PATTERN_BYTES))


def _layout(parser: AttributeParser, names: Sequence[str]) -> LinearLayout:
    entries = parser.dictionary(None)
    unknown = set(entries) - set(names)
    if unknown:
        raise parser.error(f"a layout has no dimension {sorted(unknown)[0]!r}")
    bases: dict[str, list[Basis]] = {name: list(entries.get(name, ())) for name in names}
    every = [basis for group in bases.values() for basis in group]
    if not every and "offset" not in names:
        raise parser.error("a layout needs at least one basis")
    rank = len(every[0]) if every else 1  # a buffer without a basis has one element
    # a layout covers its tile: the highest bit of any basis gives the size
    sizes = [1 << max((basis[axis] for basis in every), default=0).bit_length() for axis in range(rank)]
    try:
        return LinearLayout.make(bases, dict(zip(dims(rank), sizes, strict=True)))
    except ValueError as problem:
        raise parser.error(str(problem)) from None


def _parse_linear(parser: AttributeParser) -> Encoding:
    parser.expect("<")
    layout = _layout(parser, HARDWARE)
    parser.expect(">")
    return LinearEncoding(layout)


def _parse_shared(parser: AttributeParser) -> Encoding:
    parser.expect("<")
    layout = _layout(parser, ("offset",))
    alignment = 16
    if parser.accept(","):
        parser.expect("alignment")
        parser.expect("=")
        alignment = parser.integer()
    parser.expect(">")
    return SharedEncoding(layout, alignment)


ENCODINGS["ttg.linear"] = _parse_linear
ENCODINGS["ttg.shared_linear"] = _parse_shared
