"""How many registers the tiles of a kernel take."""

from __future__ import annotations

from kernelpack.ir.core import Value
from kernelpack.ir.types import bit_width, element_of
from kernelpack.layout.encoding import layout_of


def registers_of(value: Value) -> int:
    """Returns how many 32-bit registers a thread needs for a tile."""
    count = layout_of(value).in_size("register")
    return -(-count * max(1, bit_width(element_of(value.type))) // 32)
