"""Which copies from global to shared memory the hardware can do on its own (cp.async)."""

from __future__ import annotations

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.gpu.facts.memory_layouts import vectorise
from kernelpack.ir.core import Value
from kernelpack.ir.types import shape_of
from kernelpack.layout.convert import access_shared
from kernelpack.layout.encoding import layout_of
from kernelpack.layout.linear import LinearLayout

LEAST_BYTES = 4
"""The smallest asynchronous copy (PTX ISA, cp.async: 4, 8 or 16 bytes)."""
_SHAPING = ("arith.andi", "tt.expand_dims", "tt.broadcast", "ttg.convert_layout")


def async_copy_bits(
    pointer: Value, mask: Value | None, memory: LinearLayout, bits: int, facts: AxisInfoAnalysis
) -> tuple[int, ...]:
    """Returns the register bits of one asynchronous copy, lowest first: neighbours in global memory that are neighbours in
    shared memory too."""
    layout = layout_of(pointer)
    wide = vectorise(layout, pointer, mask, bits, facts).bits
    whole = vectorise(layout, pointer, None, bits, facts).bits
    if mask is not None and len(whole) > len(wide):
        axis = next(axis for axis, step in enumerate(layout.bases("register")[whole[0]]) if step)
        if _is_prefix(mask, axis, facts):  # what a copy leaves out at its end it fills with zeros
            wide = whole
    near = access_shared(layout, memory, bits).vector
    common = 0
    while common < min(len(wide), len(near)) and wide[common] == near[common]:
        common += 1
    return wide[:common]


def can_copy_async(pointer: Value, mask: Value | None, memory: LinearLayout, bits: int, facts: AxisInfoAnalysis) -> bool:
    """Whether a tile can be copied asynchronously: every piece has at least 4 bytes."""
    return bits << len(async_copy_bits(pointer, mask, memory, bits, facts)) >= LEAST_BYTES * 8


def _is_prefix(mask: Value, axis: int, facts: AxisInfoAnalysis) -> bool:
    """Whether along an axis a mask is true up to some place and false after it."""
    extents, op = shape_of(mask.type), mask.defining_op
    if facts[mask].constancy[axis] == extents[axis]:
        return True
    if op is None:
        return False
    if op.name == "arith.cmpi":
        below = op.attributes["predicate"] in ("slt", "sle")
        place, bound = op.operands if below else reversed(op.operands)
        ordered = below or op.attributes["predicate"] in ("sgt", "sge")  # unsigned, places below zero would be the largest
        return ordered and facts[place].contiguity[axis] == facts[bound].constancy[axis] == extents[axis]
    if op.name == "tt.expand_dims":
        axis -= axis > op.attributes["axis"]
    return op.name in _SHAPING and all(_is_prefix(operand, axis, facts) for operand in op.operands)
