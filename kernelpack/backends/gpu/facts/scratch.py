"""How much shared memory operations need for themselves, besides the buffers that ttgir names."""

from __future__ import annotations

import math

from kernelpack.analysis.alias import buffer_bytes
from kernelpack.backends.gpu.facts.partners import partner_of
from kernelpack.backends.gpu.machine import SharedUses
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import operand
from kernelpack.ir.types import MemDescType, TensorType, bit_width, shape_of
from kernelpack.layout.encoding import SharedEncoding, layout_of
from kernelpack.layout.families import swizzled
from kernelpack.layout.linear import LinearLayout

ATOMICS = ("tt.atomic_rmw", "tt.atomic_cas")


def exchange_layout(shape: tuple[int, ...]) -> LinearLayout:
    """Returns where a tile lies while threads exchange its elements: row by row."""
    return swizzled(shape, tuple(reversed(range(len(shape)))))


def scan_warps(op: Operation) -> int:
    """Returns over how many warps a scan's axis is spread."""
    axis, (source, *_) = op.attributes["axis"], op.operands
    return 1 << sum(1 for basis in layout_of(source).bases("warp") if basis[axis])


def scratch_bytes(op: Operation, uses: SharedUses) -> int:
    """Returns the bytes of shared memory that lowering an operation uses on its own; 0 for most. `uses` are the machine's."""
    if op.name in uses:
        return uses[op.name].scratch
    if op.name in ATOMICS and op.result.uses:
        kind = op.result.type
        if not isinstance(kind, TensorType):
            return max(4, bit_width(kind) // 8)
        layout = layout_of(kind)
        copies = layout.free_bits("lane") | layout.free_bits("warp")
        return _bytes(op.result) if copies else 0
    if op.name == "tt.scan":
        warps = scan_warps(op)
        if warps == 1:
            return 0
        return sum(scan_exchange_bytes(op, value) for value in op.operands)
    if op.name == "tt.gather":
        return 0 if partner_of(op) else _bytes(operand(op, "src"))
    if op.name == "tt.histogram":
        return _bytes(op.result)
    return 0


def _bytes(tile: Value) -> int:
    return math.prod(shape_of(tile.type)) * max(8, bit_width(tile.type)) // 8


def scan_exchange_bytes(op: Operation, source: Value) -> int:
    """Returns the bytes in which warps exchange their totals of one source of a scan, rounded up to keep the next one aligned."""
    shape = shape_of(source.type)
    rows = math.prod(shape) // shape[op.attributes["axis"]]
    return -(-rows * scan_warps(op) * max(8, bit_width(source.type)) // 8 // 16) * 16


def bytes_of(op: Operation, uses: SharedUses) -> int:
    """Returns the bytes of shared memory that belong to an operation: its buffer, or its scratch space."""
    if op.name == "ttg.local_alloc":
        return buffer_bytes(op.result.type)
    return scratch_bytes(op, uses)


def alignment_of(op: Operation, uses: SharedUses) -> int:
    """Returns what an operation's offset in shared memory must be a multiple of."""
    if op.name in uses:
        return uses[op.name].alignment
    encoding = op.result.type.encoding if op.name == "ttg.local_alloc" and isinstance(op.result.type, MemDescType) else None
    return encoding.alignment if isinstance(encoding, SharedEncoding) else 1
