"""carry_scalars: a loop that adds the same to a carried tile of integers or pointers in each iteration carries a scalar: the sum.

`offsets += BLOCK` would otherwise keep a whole tile in memory or registers, and hide that its elements are contiguous.
"""

from __future__ import annotations

from kernelpack.analysis.loops import is_invariant
from kernelpack.ir.core import Builder, Operation, Value
from kernelpack.ir.types import I64, TensorType, Type, bit_width, element_of, is_int, is_pointer, with_element
from kernelpack.ir.views import Carried, For


def carry_scalars(module: Operation, only_offsets: bool = False) -> Operation:
    """Rewrites a module in place and returns it.

    With `only_offsets`, tiles of pointers stay, and so do tiles to whose elements different numbers are added: for GPUs, which keep
    pointers in registers and would have to multiply.
    """
    for op in list(module.walk()):
        if op.name == "scf.for":
            for carried in reversed(For.of(op).carried):
                _carry_scalar(op, carried, only_offsets)
    return module


def _carry_scalar(loop: Operation, carried: Carried, only_offsets: bool) -> None:
    argument = carried.argument
    pointers = is_pointer(argument.type)
    if not isinstance(argument.type, TensorType) or not (is_int(argument.type) or (pointers and not only_offsets)):
        return
    step = _step(argument, carried.yielded)
    if step is None:
        return
    add = "tt.addptr" if pointers else "arith.addi"
    kind = with_element(argument.type, I64) if pointers else argument.type
    initial = carried.initial
    builder = Builder.before(loop)
    scalar = _splat_source(step, builder)
    if scalar is None and (only_offsets or not is_invariant(step, loop)):
        return

    def advanced(builder: Builder, count: Value) -> Value:
        """The initial tile moved by `count` steps: count is a number of elements if the step is uniform."""
        element = element_of(kind)
        amount = builder.value("tt.splat", [_widen(builder, count, element)], None, kind)
        if scalar is None:
            amount = builder.value("arith.muli", [amount, _widen(builder, step, element)])
        return builder.value(add, [initial, amount])

    if scalar is None:
        counter_type = min(For.of(loop).lower.type, element_of(kind), key=bit_width)  # sums wrap around as narrow counts do
        unit = builder.constant(1, counter_type)
    else:
        counter_type = element_of(kind)
        varies = not is_invariant(scalar, loop)
        unit = _widen(Builder.before(loop.body.terminator) if varies else builder, scalar, counter_type)
    zero = builder.constant(0, counter_type)
    carried.begin_with(zero)
    inside = Builder(loop.body, 0, loop.location)
    body_uses = list(argument.uses)
    argument.type = counter_type
    replacement = advanced(inside, argument)
    for user, position in body_uses:
        user.set_operand(position, replacement)
    end = Builder.before(loop.body.terminator)
    carried.go_on_with(end.value("arith.addi", [argument, unit]))
    result = carried.result
    after_uses = list(result.uses)
    result.type = counter_type
    if after_uses:
        moved = advanced(Builder.after(loop), result)
        for user, position in after_uses:
            user.set_operand(position, moved)


def _step(argument: Value, yielded: Value) -> Value | None:
    """Returns what each iteration adds to the carried tile."""
    op = yielded.defining_op
    if op is None or op.name not in ("arith.addi", "tt.addptr"):
        return None
    a, b = op.operands
    if a is argument and b is not argument:
        return b
    return a if b is argument and op.name == "arith.addi" else None


def _splat_source(value: Value, builder: Builder) -> Value | None:
    """Returns the scalar that every element of a tile equals, made by `builder` where it is a constant."""
    op = value.defining_op
    if op is None:
        return None
    match op.name:
        case "tt.splat":
            return op.operand
        case "arith.constant":
            return builder.constant(op.attributes["value"], element_of(op.result.type))
        case "tt.broadcast":
            return _splat_source(op.operand, builder)
        case _:
            return None


def _widen(builder: Builder, value: Value, element: Type) -> Value:
    kind = with_element(value.type, element)
    return value if value.type == kind else builder.value("arith.extsi", [value], None, kind)
