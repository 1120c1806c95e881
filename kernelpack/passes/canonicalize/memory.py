"""Folds of memory accesses: masks that are known, and pointers with constant offsets."""

from __future__ import annotations

from collections.abc import Sequence

from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import operand, optional_operand
from kernelpack.ir.dialects.descriptors import block_of, squeezed
from kernelpack.ir.rewrite import Fold, Pattern, Rewriter
from kernelpack.ir.types import FloatType, IntegerType, bit_width, element_of, shape_of
from kernelpack.passes.canonicalize.arithmetic import constant_of, made_by


def _known_mask(op: Operation) -> bool | None:
    mask = optional_operand(op, "mask")
    known = None if mask is None else constant_of(mask)
    return None if known is None else bool(known)


def load_with_known_mask(op: Operation, build: Rewriter) -> Value | None:
    """A mask that is on goes, one that is off leaves `other` or zero."""
    known = _known_mask(op)
    if known is None:
        return None
    if known:
        return build.value(op.name, [operand(op, "ptr")], op.attributes)
    other = optional_operand(op, "other")
    if other is None and isinstance(element_of(op.result.type), (IntegerType, FloatType)):
        other = build.constant(0, op.result.type)
    return other


def store_with_known_mask(op: Operation, rewriter: Rewriter) -> bool:
    known = _known_mask(op)
    if known is None:
        return False
    if known:
        rewriter.create(op.name, [operand(op, "ptr"), operand(op, "value")], op.attributes)
    rewriter.erase(op)
    return True


def atomic_with_known_mask(op: Operation, build: Rewriter) -> Value | None:
    known = _known_mask(op)
    if known is None:
        return None
    pointer, value, _ = op.operands
    return build.value(op.name, [pointer, value], op.attributes) if known else build.constant(0, op.result.type)


def gather_offsets(op: Operation, build: Rewriter) -> Value | None:
    """(p + c) + d is p + (c + d) where the sum of the constants fits the wider of their types."""
    pointer, last = op.operands
    inner = made_by(pointer, "tt.addptr")
    if inner is None:
        return None
    start, offset = inner.operands
    first, second = constant_of(offset), constant_of(last)
    if first is None or second is None:
        return None
    kind = max(offset.type, last.type, key=bit_width)
    total, width = int(first) + int(second), bit_width(kind)
    if width == 1 or not -(1 << width - 1) <= total < 1 << width - 1:
        return None
    return build.value(op.name, [start, build.constant(total, kind)])


def load_without_ones(op: Operation, rewriter: Rewriter) -> bool:
    """A block whose axes of size 1 are dropped at once is loaded without them."""
    users = op.result.users()
    if len(users) != 1 or users[0].name != "tt.reshape" or op.result.type == users[0].result.type:
        return False
    if shape_of(users[0].result.type) != squeezed(block_of(operand(op, "desc").type).shape):
        return False
    loaded = rewriter.value(op.name, op.operands, op.attributes, users[0].result.type)
    rewriter.replace(users[0], loaded)
    rewriter.erase(op)
    return True


def store_without_ones(op: Operation, rewriter: Rewriter) -> bool:
    """A block that was given axes of size 1 to be stored is stored without them."""
    made = made_by(operand(op, "src"), "tt.reshape")
    if made is None or shape_of(made.operand.type) != squeezed(block_of(operand(op, "desc").type).shape):
        return False
    if made.operand.type == operand(op, "src").type:
        return False
    desc, _, *indices = op.operands
    rewriter.create(op.name, [desc, made.operand, *indices], op.attributes)
    rewriter.erase(op)
    return True


FOLDS: dict[str, Sequence[Fold]] = {
    "tt.load": (load_with_known_mask,),
    "tt.atomic_rmw": (atomic_with_known_mask,),
    "tt.addptr": (gather_offsets,),
}

PATTERNS: dict[str, Sequence[Pattern]] = {
    "tt.store": (store_with_known_mask,),
    "tt.descriptor_load": (load_without_ones,),
    "tt.descriptor_store": (store_without_ones,),
}
