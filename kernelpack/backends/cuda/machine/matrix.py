"""Which instruction computes a tt.dot, and how its operands and result are spread over the threads."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from kernelpack.backends.cuda.machine.features import LANES
from kernelpack.backends.cuda.machine.warpgroup import ROWS, WARPS
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import attribute, operand, operand_name
from kernelpack.ir.types import BF16, F8E4M3FN, F8E5M2, F16, F32, I8, I32, TensorType, Type, bit_width, element_of, shape_of
from kernelpack.ir.views import Carried, For, factors, slot_fed_by
from kernelpack.layout.encoding import layout_of
from kernelpack.layout.families import blocked, mma_accumulator, mma_operand, warpgroup_accumulator, warpgroup_operand
from kernelpack.layout.linear import LinearLayout


@dataclass(frozen=True)
class MmaInstruction:
    """A row of the table of mma.sync shapes (PTX ISA 9.7.15.5): D[16, 8] = A[16, k] B[k, 8] + C.

    `intrinsic` is LLVM's name; `word` the LLVM type of a register of A and B.
    """

    intrinsic: str
    k: int
    bits: int
    word: str


_MMA: dict[tuple[Type, Type], MmaInstruction] = {
    (F16, F32): MmaInstruction("llvm.nvvm.mma.m16n8k16.row.col.f32.f32", 16, 16, "<2 x half>"),
    (F16, F16): MmaInstruction("llvm.nvvm.mma.m16n8k16.row.col.f16.f16", 16, 16, "<2 x half>"),
    (BF16, F32): MmaInstruction("llvm.nvvm.mma.m16n8k16.row.col.bf16", 16, 16, "i32"),
    (F32, F32): MmaInstruction("llvm.nvvm.mma.m16n8k8.row.col.tf32", 8, 32, "i32"),
    (I8, I32): MmaInstruction("llvm.nvvm.mma.m16n8k32.row.col.satfinite.s8", 32, 8, "i32"),
    (F8E4M3FN, F32): MmaInstruction("llvm.nvvm.mma.m16n8k32.row.col.f32.e4m3.e4m3.f32", 32, 8, "i32"),
    (F8E5M2, F32): MmaInstruction("llvm.nvvm.mma.m16n8k32.row.col.f32.e5m2.e5m2.f32", 32, 8, "i32"),
}
"""By the types of operands and of sums."""


def mma_instruction(dot: Operation) -> MmaInstruction | None:
    """Returns the tensor-core instruction for a dot; None where ordinary arithmetic must do it.

    float32 operands go to the tensor cores only when the kernel allows tf32. A summed dimension shorter than one instruction
    has no fragment layout (the unused part would have to be zero), so it is left to ordinary arithmetic too.
    """
    a, _, c = (value.type for value in dot.operands)
    instruction = _MMA.get((element_of(a), element_of(c)))
    if instruction is None:
        return None
    if element_of(a) == F32 and attribute(dot, "input_precision") == "ieee":
        return None
    return instruction if shape_of(a)[-1] >= instruction.k else None


def splits_operands(dot: Operation) -> bool:
    """Whether tensor cores multiply float32 operands as sums of two tf32 numbers."""
    return element_of(operand(dot, "a").type) == F32 and attribute(dot, "input_precision") == "tf32x3"


def feeds_dot(value: Value) -> bool:
    """Whether a value reaches an operand a or b of a dot."""
    seen: set[Value] = set()
    pending = [value]
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        for user, index in current.uses:
            if user.name == "tt.dot" and operand_name(user, index) != "c":
                return True
            if user.name == "scf.yield" and user.parent_op is not None:
                pending += user.parent_op.results[index : index + 1]
                if user.parent_op.name == "scf.for":
                    pending.append(For.of(user.parent_op).carries(index).argument)
            elif user.name == "scf.for":
                carried = slot_fed_by(user, index)
                pending += [carried.argument] if isinstance(carried, Carried) else []
            else:
                pending += user.results
    return False


def is_chained(dot: Operation) -> bool:
    """Whether a dot's result feeds another dot, or another dot's result feeds it: both then share their rows over the warps. So does a dot
    that such a one adds to."""
    function = next(op for op in dot.ancestors() if op.name == "tt.func")
    if feeds_dot(dot.result):
        return True
    others = [op for op in function.walk() if op.name == "tt.dot" and op is not dot]
    if any(_reaches(other.result, factors(dot)) for other in others):
        return True
    shape = shape_of(dot.result.type)
    alike = [other for other in others if shape_of(other.result.type) == shape]
    return any(_reaches(dot.result, [operand(other, "c")]) and is_chained(other) for other in alike)


def _reaches(value: Value, operands: Iterable[Value]) -> bool:
    """Whether one of `operands` is computed from `value` in the same iteration."""
    seen: set[Value] = set()
    pending = list(operands)
    while pending:
        current = pending.pop()
        if current is value:
            return True
        if current in seen:
            continue
        seen.add(current)
        if current.defining_op is not None:
            pending += current.defining_op.operands
    return False


def warps_over_dot(shape: tuple[int, ...], num_warps: int, chained: bool) -> tuple[int, ...]:
    """Returns how many warps lie along each dimension of an accumulator.

    Batches first. Then a chained dot puts all warps along M, so that its rows stay within a warp; any other keeps the part of
    a warp as square as it can, which loads the least of A and B.
    """
    *batch, m, n = shape
    warps = [1] * len(shape)
    left = num_warps
    for axis, size in enumerate(batch):
        warps[axis] = min(left, size)
        left //= warps[axis]
    rows, columns = 1, 1
    while rows * columns < left:
        room_m, room_n = m // (16 * rows), n // (8 * columns)
        if room_m > 1 and (chained or room_n <= 1 or m // rows >= n // columns):
            rows *= 2
        elif room_n > 1:
            columns *= 2
        else:
            rows *= 2  # more warps than tiles: copies
    return (*warps[:-2], rows, columns)


@functools.lru_cache(maxsize=1024)
def fma_accumulator(
    shape: tuple[int, ...], num_warps: int, chained: bool, apart: tuple[bool, bool] = (False, False)
) -> LinearLayout:
    """Returns the layout of a dot's result on the ordinary cores: 8 x 4 lanes, a block of up to 4 x 4 elements in a thread.

    `apart` tells of rows and columns whether their operand lies along the summed dimension in a buffer of the kernel's own. Then
    neighbours are in neighbouring lanes, as TMA spreads them over the banks, and a wide part of a warp has 4 x 8 lanes: a thread's part
    is as square as it can be, and reads the least.
    """
    m, n = shape[-2:]
    rank = len(shape)
    warps = warps_over_dot(shape, num_warps, chained)
    lanes = [1] * rank
    height, width = max(1, m // warps[-2]), max(1, n // warps[-1])
    wide = any(apart) and width >= max(2 * height, 32)
    lanes[-2] = min(4 if wide else 8, height)
    lanes[-1] = LANES // lanes[-2]
    per = [1] * rank
    per[-2] = 1 if apart[0] else min(4, max(1, height // lanes[-2]))
    per[-1] = 1 if apart[1] else min(4, max(1, width // lanes[-1]))
    order = tuple(reversed(range(rank)))
    layout = blocked(shape, tuple(per), tuple(lanes), warps, order)
    # 16 lanes read 16 bytes each in one pass where neighbours, or every second, read the same: so for both operands
    bases = layout.bases("lane")
    if lanes[-2:] == [8, 4]:
        column, next_column, row, *rows = bases
        return layout.with_bases("lane", (column, row, next_column, *rows))
    if lanes[-2:] == [4, 8]:
        column, next_column, last_column, row, next_row = bases
        return layout.with_bases("lane", (column, row, next_column, next_row, last_column))
    return layout


def _is_along_k(tile: Value, axis: int) -> bool:
    """Whether an operand is read from a buffer whose fastest axis is `axis`, the summed one."""
    load = tile.defining_op
    return load is not None and load.name == "ttg.local_load" and bool(layout_of(operand(load, "src")).bases("offset")[0][axis])


def warpgroups_over_dot(shape: tuple[int, ...], num_warps: int) -> tuple[int, int]:
    """Returns how many warps of a warp_group_dot lie along M and N: along M as long as each warpgroup has rows of its own."""
    along_m = min(num_warps, max(1, shape[0] // ROWS) * WARPS)
    return along_m, num_warps // along_m


def accumulator_layout(dot: Operation, num_warps: int) -> LinearLayout:
    """Returns the layout of a dot's result."""
    shape = shape_of(dot.result.type)
    if dot.name == "ttng.warp_group_dot":
        m, n = shape
        return warpgroup_accumulator((m, n), warpgroups_over_dot(shape, num_warps))
    chained = is_chained(dot)
    if mma_instruction(dot) is None:
        apart = _is_along_k(operand(dot, "a"), -1), _is_along_k(operand(dot, "b"), -2)
        return fma_accumulator(shape, num_warps, chained, apart)
    return mma_accumulator(shape, warps_over_dot(shape, num_warps, chained))


def operand_layouts(dot: Operation, num_warps: int) -> tuple[LinearLayout | None, LinearLayout | None]:
    """Returns the layouts of operands a and b in registers; None where they are read from shared memory."""
    if dot.name == "ttng.warp_group_dot":
        a = operand(dot, "a").type
        if not isinstance(a, TensorType):
            return None, None
        over = warpgroups_over_dot(shape_of(dot.result.type), num_warps)
        return warpgroup_operand((a.shape[0], a.shape[1]), bit_width(a), over), None
    instruction = mma_instruction(dot)
    if instruction is None:
        return None, None
    warps = warps_over_dot(shape_of(dot.result.type), num_warps, is_chained(dot))
    left, right = (shape_of(value.type) for value in factors(dot))
    paired = splits_operands(dot)
    return mma_operand(left, 0, instruction.bits, warps, paired), mma_operand(right, 1, instruction.bits, warps, paired)
