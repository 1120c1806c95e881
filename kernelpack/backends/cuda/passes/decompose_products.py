"""Rewrites dots that no instruction computes as they stand into ones that do: float32 in parts of bfloat16, bfloat16 sums, 8-bit
floats as halves; and those of float32 that was widened into dots of what it was."""

from __future__ import annotations

from kernelpack.backends.cuda.machine.matrix import mma_instruction
from kernelpack.ir.core import Builder, Operation, Value
from kernelpack.ir.dialect import attribute, operand, replace_operand
from kernelpack.ir.types import BF16, F16, F32, FloatType, Type, bit_width, element_of, shape_of, with_element
from kernelpack.ir.views import factors

_PARTS = {"bf16x3": 2, "bf16x6": 3}
_REARRANGING = ("tt.trans", "tt.reshape", "tt.broadcast", "tt.expand_dims")
_LEAST_DEPTH = 16
"""K of an instruction for 16-bit operands."""


def decompose_dots(function: Operation) -> None:
    """Rewrites a ttir function in place."""
    for op in list(function.walk()):
        if op.name == "tt.dot" and element_of(op.result.type) == BF16:
            op = _widen_accumulator(op)
        if op.name == "tt.dot" and attribute(op, "input_precision") in ("tf32", "tf32x3"):
            _narrow(op)
        if op.name == "tt.dot" and attribute(op, "input_precision") in _PARTS:
            _split(op)


def widen_small_floats(function: Operation, has_fp8_mma: bool) -> None:
    """Multiplies 8-bit floats as halves, which hold them exactly, in a ttir function, where mma.sync does not have them as they are.

    It sums to about 14 bits (as wgmma does): kernels that limit how many products are summed so get halves, too.
    """
    for op in list(function.walk()):
        if op.name != "tt.dot":
            continue
        a, b = (value.type for value in factors(op))
        kind = element_of(a)
        if isinstance(kind, FloatType) and bit_width(kind) == 8:
            exact = attribute(op, "max_num_imprecise_acc") <= shape_of(a)[-1]
            if has_fp8_mma and not exact and kind == element_of(b) and mma_instruction(op) is not None:
                continue
            build = Builder.before(op)
            for name in ("a", "b"):
                tile = operand(op, name)
                replace_operand(op, name, build.value("tt.fp_to_fp", [tile], None, with_element(tile.type, F16)))


def _narrow(op: Operation) -> None:
    """Multiplies what was widened to float32 as it was. tf32 has all bits of bfloat16 and of a half: the products are the same."""
    a, b = factors(op)
    kinds = {_was(a), _was(b)}
    if len(kinds) != 1 or None in kinds or shape_of(a.type)[-1] < _LEAST_DEPTH or element_of(op.result.type) != F32:
        return
    build = Builder.before(op)
    for name, value in (("a", a), ("b", b)):
        replace_operand(op, name, _as_it_was(build, value))


def _was(value: Value) -> Type | None:
    """Returns the 16-bit type that a tile of float32 was widened from; None where it was not."""
    op = value.defining_op
    if op is None or element_of(value.type) != F32:
        return None
    if op.name in _REARRANGING:
        return _was(op.operand)
    kind = element_of(op.operand.type) if op.name == "arith.extf" else None
    return kind if kind in (BF16, F16) else None


def _as_it_was(build: Builder, value: Value) -> Value:
    op = value.defining_op
    assert op is not None
    if op.name == "arith.extf":
        return op.operand
    narrow = _as_it_was(build, op.operand)
    return build.value(op.name, [narrow], op.attributes, with_element(value.type, element_of(narrow.type)))


def _widen_accumulator(op: Operation) -> Operation:
    """Sums in float32 and rounds once, which is more accurate than a 16-bit accumulator."""
    build = Builder.before(op)
    kind = op.result.type
    a, b, c = op.operands
    wide = build.value("arith.extf", [c], None, with_element(kind, F32))
    dot = build.create("tt.dot", [a, b, wide], op.attributes)
    op.replace_with(build.value("arith.truncf", [dot.result], None, kind))
    return dot


def _split(op: Operation) -> None:
    """Cuts each operand into parts that a tensor core multiplies exactly, and adds the products from the smallest to the largest.

    The product of the two smallest parts is left out: it is below the rounding of the sum.
    """
    precision = attribute(op, "input_precision")
    a, b, total = op.operands
    build = Builder.before(op)
    attributes = {**op.attributes, "input_precision": "ieee"}
    if element_of(a.type) != F32:
        op.attributes["input_precision"] = "ieee"
        return
    count = _PARTS[precision]
    left, right = _bf16_parts(build, a, count), _bf16_parts(build, b, count)
    pairs = [(i, j) for i in range(count) for j in range(count) if i + j < count]
    for i, j in sorted(pairs, key=lambda pair: -sum(pair)):
        total = build.value("tt.dot", [left[i], right[j], total], attributes)
    op.replace_with(total)


def _finite(build: Builder, rest: Value) -> Value:
    """Infinity minus infinity would spoil the product: the upper part alone says it."""
    unordered = build.value("arith.cmpf", [rest, rest], {"predicate": "uno"})
    return build.value("arith.select", [unordered, build.constant(0.0, rest.type), rest])


def _bf16_parts(build: Builder, value: Value, count: int) -> list[Value]:
    parts = []
    for _ in range(count):
        part = build.value("arith.truncf", [value], None, with_element(value.type, BF16))
        parts.append(part)
        value = _finite(build, build.value("arith.subf", [value, build.value("arith.extf", [part], None, value.type)]))
    return parts
