"""Index arithmetic that keeps the form (base, step): addresses and masks of contiguous accesses cost an instruction or two."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kernelpack.backends.cpu.emit.elements import element_bytes, memory_type, register_type
from kernelpack.backends.cpu.emit.places import Affine, Index, Lanes, Uniform, Vector
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import pointee_of
from kernelpack.ir.types import element_of
from kernelpack.llvm.text import Val, literal

if TYPE_CHECKING:
    from kernelpack.backends.cpu.emit.evaluate import Evaluator


def _scalar(lanes: Lanes) -> Val:
    assert isinstance(lanes, (Uniform, Affine))
    return lanes.val if isinstance(lanes, Uniform) else lanes.base


def _step(lanes: Lanes) -> int | Val:
    return lanes.step if isinstance(lanes, Affine) else 0


def _combine_steps(ev: Evaluator, a: int | Val, b: int | Val, opcode: str, kind: str) -> int | Val:
    if isinstance(a, int) and isinstance(b, int):
        return a + b if opcode == "add" else a - b
    if b == 0:
        return a
    left = literal(a, kind) if isinstance(a, int) else a
    right = literal(b, kind) if isinstance(b, int) else b
    return ev.em.binary(opcode, left, right)


def _exact(ev: Evaluator, op: Operation, opcode: str) -> str:
    """Returns LLVM's operation for a sum or product: places are taken not to wrap, numbers do."""
    return opcode if op.result in ev.program.data else f"{opcode} nsw"


Arithmetic = Callable[["Evaluator", Operation, Sequence[Lanes]], "Lanes | None"]


def _sum(opcode: str) -> Arithmetic:
    def emit(ev: Evaluator, op: Operation, operands: Sequence[Lanes]) -> Lanes | None:
        if any(isinstance(lanes, Vector) for lanes in operands) or all(isinstance(lanes, Uniform) for lanes in operands):
            return None
        a, b = operands
        depth = max(a.depth, b.depth)
        with ev.em.into(ev.at(depth)):
            base = ev.em.binary(_exact(ev, op, opcode), _scalar(a), _scalar(b))
            return Affine(base, _combine_steps(ev, _step(a), _step(b), opcode, base.type), depth)

    return emit


def _product(ev: Evaluator, op: Operation, operands: Sequence[Lanes]) -> Lanes | None:
    a, b = operands
    if isinstance(a, Uniform) and isinstance(b, Affine):
        a, b = b, a
    if not (isinstance(a, Affine) and isinstance(b, Uniform)):
        return None
    depth = max(a.depth, b.depth)
    factor = b.val
    with ev.em.into(ev.at(depth)):
        base = ev.em.binary(_exact(ev, op, "mul"), a.base, factor)
        step: int | Val
        if isinstance(a.step, int) and not factor.name.startswith("%"):
            step = a.step * int(factor.name)
        elif a.step == 1:
            step = factor
        else:
            own = literal(a.step, factor.type) if isinstance(a.step, int) else a.step
            step = ev.em.binary("mul", own, factor)
        return Affine(base, step, depth)


def _resize(opcode: str) -> Arithmetic:
    def emit(ev: Evaluator, op: Operation, operands: Sequence[Lanes]) -> Lanes | None:
        (lanes,) = operands
        if not isinstance(lanes, Affine):
            return None
        kind = register_type(element_of(op.result.type))
        with ev.em.into(ev.at(lanes.depth)):
            step = lanes.step if isinstance(lanes.step, int) else ev.em.cast(opcode, lanes.step, kind)
            return Affine(ev.em.cast(opcode, lanes.base, kind), step, lanes.depth)

    return emit


def _add_pointer(ev: Evaluator, op: Operation, operands: Sequence[Lanes]) -> Lanes:
    pointer, offset = operands
    pointers, offsets_of = (value.type for value in op.operands)
    pointee = element_of(pointee_of(pointers))
    kind, size = memory_type(pointee), element_bytes(pointee)
    depth = max(pointer.depth, offset.depth)
    em = ev.em
    if isinstance(pointer, Vector) or isinstance(offset, Vector):
        offsets = ev.vector(offset, element_of(offsets_of))
        base = pointer.val if isinstance(pointer, Uniform) else ev.vector(pointer, pointers)
        with em.into(ev.at(depth)):
            return Vector(em.op(f"<{ev.width} x ptr>", f"getelementptr {kind}, {base}, {offsets}"), depth)
    with em.into(ev.at(depth)):
        moved = em.op("ptr", f"getelementptr {kind}, {_scalar(pointer)}, {_scalar(offset)}")
        if isinstance(pointer, Uniform) and isinstance(offset, Uniform):
            return Uniform(moved, depth)
        own, more = _step(pointer), _step(offset)
        scaled: int | Val
        if isinstance(more, int):
            scaled = more * size
        else:
            scaled = em.binary("mul", em.cast("sext", more, "i64"), literal(size, "i64"))
        return Affine(moved, _combine_steps(ev, own, scaled, "add", "i64"), depth)


def _both(ev: Evaluator, op: Operation, operands: Sequence[Lanes]) -> Lanes | None:
    """A mask that is known to hold leaves the other one, one that is known not to decides."""
    for one, other in (operands, reversed(operands)):
        if isinstance(one, Uniform) and one.val.type == "i1" and one.val.name in ("true", "false"):
            return other if one.val.name == "true" else one
    return None


INDEX_ARITHMETIC: dict[str, Arithmetic] = {
    "arith.addi": _sum("add"),
    "arith.subi": _sum("sub"),
    "arith.muli": _product,
    "arith.andi": _both,
    "arith.extsi": _resize("sext"),
    "arith.trunci": _resize("trunc"),
    "tt.addptr": _add_pointer,
}

QUOTIENTS = ("arith.divsi", "arith.divui", "arith.remsi", "arith.remui")


def divide_neighbours(ev: Evaluator, op: Operation, index: Index) -> Lanes | None:
    """Divides the first of neighbouring integers, where the others have the same quotient and follow it in the remainder: with eight
    lanes, x // 32 and x % 32 of an x that is a multiple of eight. The vectors of an iteration share what they can. Returns None for
    others."""
    axis = next((axis for axis, place in enumerate(index) if place.lanes), None)
    dividend, divisor = op.operands
    divided, result = (ev.program.neighbours[value] for value in (dividend, op.result))
    if axis is None or not divided.nonnegative:
        return None  # the quotients of neighbours below zero are rounded towards it
    remainder = op.name.startswith("arith.rem")
    group = math.gcd((result.contiguity if remainder else result.constancy)[axis], ev.lane_step)
    if group % ev.width:
        return None
    after = index[axis].offset % group
    first = (*index[:axis], index[axis].plus(-after), *index[axis + 1 :])
    if after:
        lanes = ev.evaluate(op.result, first)
        if not remainder or not isinstance(lanes, Affine):
            return lanes if isinstance(lanes, Uniform) else None
        with ev.em.into(ev.at(lanes.depth)):
            return Affine(ev.em.op(lanes.base.type, f"add nsw {lanes.base}, {after}"), 1, lanes.depth)
    above, below = ev.evaluate(dividend, first), ev.evaluate(divisor, first)
    if not (isinstance(above, Affine) and above.step == 1 and isinstance(below, Uniform)):
        return None
    depth = max(above.depth, below.depth)
    with ev.em.into(ev.at(depth)):
        divided_first = ev.lowering.lower(op, [above.base, below.val])
    return Affine(divided_first, 1, depth) if remainder else Uniform(divided_first, depth)
