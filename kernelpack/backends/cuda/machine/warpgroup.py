"""What wgmma can multiply: its instruction shapes, the tiles in shared memory that it reads, and their descriptors."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

from kernelpack.backends.gpu.facts.memory_layouts import memory_bits
from kernelpack.ir.types import BF16, F8E4M3FN, F8E5M2, F16, F32, I8, I32, MemDescType, Type
from kernelpack.layout.encoding import layout_of
from kernelpack.layout.families import SWIZZLES, dim, tma_tile
from kernelpack.layout.linear import LinearLayout

ROWS = 64
"""M of one instruction, which the four warps of a warpgroup execute together."""
WARPS = 4
MOST_COLUMNS = 256
GROUP = 8
"""Rows (K-major) or k-steps (MN-major) that lie in one repetition of the swizzle's pattern."""


@dataclass(frozen=True)
class WarpgroupInstruction:
    """A row of the table of wgmma types (PTX ISA, wgmma.mma_async): D[64, N] = A[64, k] B[k, N] + D.

    `types` is the part of the name after the shape. `scales` says whether operands can be negated, `transposes` whether they
    can be MN-major; both add arguments.
    """

    types: str
    k: int
    bits: int
    accumulator: Type
    scales: bool = True
    transposes: bool = False


INSTRUCTIONS: dict[Type, WarpgroupInstruction] = {
    F16: WarpgroupInstruction("f32.f16.f16", 16, 16, F32, transposes=True),
    BF16: WarpgroupInstruction("f32.bf16.bf16", 16, 16, F32, transposes=True),
    F32: WarpgroupInstruction("f32.tf32.tf32", 8, 32, F32),
    I8: WarpgroupInstruction("s32.s8.s8", 32, 8, I32, scales=False),
    F8E4M3FN: WarpgroupInstruction("f32.e4m3.e4m3", 32, 8, F32),
    F8E5M2: WarpgroupInstruction("f32.e5m2.e5m2", 32, 8, F32),
}
SMALL_FLOATS = {F8E4M3FN: "e4m3", F8E5M2: "e5m2"}
"""The 8-bit floats that the hardware has, as its instructions call them."""


def instruction_of(a: Type, b: Type, accumulator: Type) -> WarpgroupInstruction | None:
    """Returns the instruction for operands of two element types and their sums; the 8-bit floats can be mixed."""
    found = INSTRUCTIONS.get(a)
    if a != b and a in SMALL_FLOATS and b in SMALL_FLOATS:
        found = dataclasses.replace(INSTRUCTIONS[a], types=f"f32.{SMALL_FLOATS[a]}.{SMALL_FLOATS[b]}")
    elif a != b:
        return None
    if found is not None and accumulator == F16 and a in (F16, *SMALL_FLOATS):
        found = dataclasses.replace(found, types=found.types.replace("f32", "f16", 1), accumulator=F16)
    return found if found is not None and found.accumulator == accumulator else None


@dataclass(frozen=True)
class OperandTile:
    """How wgmma's descriptor describes an operand in shared memory (PTX ISA, "Matrix descriptor"); strides in bytes.

    `offsets` maps (`mn`, `k`) to the byte where an element lies. K-major: `stride` is between groups of eight rows, `leading`
    is not used. MN-major: `stride` is between groups of eight k-steps, `leading` between panels.
    """

    swizzle: int
    mn_major: bool
    leading: int
    stride: int
    offsets: LinearLayout

    @property
    def fixed_bits(self) -> int:
        """Everything of the descriptor but the address: bits 16-29 and 32-45 the strides / 16, 62-63 the swizzle."""
        mode = SWIZZLES.index(self.swizzle) + 1
        return mode << 62 | self.stride >> 4 << 32 | self.leading >> 4 << 16

    def offset(self, mn: int, k: int) -> int:
        """Returns how many bytes after the tile's address the part that starts at (mn, k) starts."""
        return self.offsets(mn=mn, k=k)[0]


@functools.lru_cache(maxsize=1024)
def operand_tile(layout: LinearLayout, bits: int, k_axis: int) -> OperandTile | None:
    """Returns how wgmma reads a tile of shared memory whose dimension `k_axis` is summed over; None where it cannot."""
    if len(layout.shape) != 2 or not layout.is_injective:
        return None
    shape = (layout.shape[0], layout.shape[1])
    for swizzle in SWIZZLES:
        for fast in (0, 1):
            if shape[fast] * bits // 8 % swizzle or layout != tma_tile(shape, bits, (fast, 1 - fast), swizzle):
                continue
            mn_major = fast != k_axis
            if shape[1 - fast] < GROUP or (mn_major and bits != 16):
                return None
            return _operand_tile(layout, bits, k_axis, swizzle, mn_major)
    return None


def _operand_tile(layout: LinearLayout, bits: int, k_axis: int, swizzle: int, mn_major: bool) -> OperandTile:
    inverse = layout.invert()

    def scaled(axis: int) -> list[tuple[int]]:
        return [(basis[0] * bits // 8,) for basis in inverse.bases(dim(axis))]

    size = layout.in_size("offset") * bits // 8
    offsets = LinearLayout.make({"mn": scaled(1 - k_axis), "k": scaled(k_axis)}, {"offset": size})
    panel = swizzle * 8 // bits
    if not mn_major:
        return OperandTile(swizzle, False, 16, GROUP * swizzle, offsets)
    columns = offsets.in_size("mn")
    leading = offsets(mn=panel)[0] if columns > panel else size
    return OperandTile(swizzle, True, leading, GROUP * swizzle, offsets)


def tile_of(kind: Type, k_axis: int) -> OperandTile | None:
    """Returns how wgmma reads a buffer; None where it cannot."""
    assert isinstance(kind, MemDescType)
    return operand_tile(layout_of(kind), memory_bits(kind), k_axis)
