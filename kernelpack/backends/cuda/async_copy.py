"""Which copies from global to shared memory the hardware can do on its own (cp.async)."""

from __future__ import annotations

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.cuda.memory_layouts import vectorise
from kernelpack.ir.core import Value
from kernelpack.layout.convert import access_shared
from kernelpack.layout.encoding import layout_of
from kernelpack.layout.linear import LinearLayout

LEAST_BYTES = 4
"""The smallest asynchronous copy (PTX ISA, cp.async: 4, 8 or 16 bytes)."""


def async_copy_bits(
    pointer: Value, mask: Value | None, memory: LinearLayout, bits: int, facts: AxisInfoAnalysis
) -> tuple[int, ...]:
    """Returns the register bits of one asynchronous copy, lowest first: neighbours in global memory that are neighbours in
    shared memory too."""
    layout = layout_of(pointer)
    wide = vectorise(layout, pointer, mask, bits, facts).bits
    near = access_shared(layout, memory, bits).vector
    common = 0
    while common < min(len(wide), len(near)) and wide[common] == near[common]:
        common += 1
    return wide[:common]


def can_copy_async(pointer: Value, mask: Value | None, memory: LinearLayout, bits: int, facts: AxisInfoAnalysis) -> bool:
    """Whether a tile can be copied asynchronously: every piece has at least 4 bytes."""
    return bits << len(async_copy_bits(pointer, mask, memory, bits, facts)) >= LEAST_BYTES * 8
