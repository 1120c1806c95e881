"""Computes offsets of 64 bits in 32, of which a GPU makes 64 by several instructions, where a tensor ends within 2**31 bytes.

Every access that takes place lies between the pointer and the tensor's end, so the element it names is below 2**31 and the low half
of the offset tells it. What comes of the elements that a mask leaves out is never used as an address.
"""

from __future__ import annotations

from kernelpack.context import Context
from kernelpack.facts import RANGE, Fact
from kernelpack.ir.core import Builder, Operation, Value, entry_function
from kernelpack.ir.dialect import facts, operand_name, replace_operand
from kernelpack.ir.types import I32, I64, element_of, with_element

_ACCESSES = ("tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas")
_LOW_HALVES = ("arith.addi", "arith.subi", "arith.muli", "arith.andi", "arith.ori", "arith.xori")
"""The low half of the result is that of the operation on low halves."""
_MOVES = ("tt.splat", "tt.broadcast", "tt.expand_dims")


def arguments_within(kernel: Operation) -> set[Value]:
    """Returns the arguments whose tensors end within 2**31 bytes."""
    known = kernel.attributes.get("arg_attrs") or [{}] * len(kernel.body.arguments)
    return {argument for argument, entry in zip(kernel.body.arguments, known, strict=True) if entry.get(RANGE) == 32}


def narrow_offsets(kernel: Operation) -> set[str]:
    """Rewrites a kernel in place. Returns the names of the arguments whose range it relied on."""
    within = arguments_within(kernel)
    used: set[str] = set()
    for op in list(kernel.walk()) if within else ():
        if op.name != "tt.addptr":
            continue
        pointer, offset = op.operands
        base = _argument(pointer)
        if element_of(offset.type) == I64 and base in within and _only_addresses(op.result):
            replace_operand(op, "offset", _narrow(offset, op))
            used.add(base.name)
    return used


def narrow_kernel(module: Operation, context: Context) -> None:
    """Narrows the offsets of a module's kernel, and notes of which arguments nobody needed to know the range."""
    kernel = entry_function(module)
    unused = {argument.name for argument in arguments_within(kernel)} - narrow_offsets(kernel)
    context.unused |= {Fact(name, RANGE, 32) for name in unused}


def _only_addresses(pointers: Value) -> bool:
    """Whether pointers are used, and only to access what they point to."""
    return bool(pointers.uses) and all(
        user.name in _ACCESSES and operand_name(user, place) == "ptr" for user, place in pointers.uses
    )


def _argument(pointer: Value) -> Value:
    """Returns the value that every element of a tile of pointers is."""
    op = pointer.defining_op
    while op is not None and op.name in _MOVES:
        pointer = op.operand
        op = pointer.defining_op
    return pointer


def _narrow(offset: Value, user: Operation) -> Value:
    """Returns the low half of an offset, computed on low halves as far as nobody else needs the whole."""
    op = offset.defining_op
    kind = with_element(offset.type, I32)
    if op is None:
        return Builder.before(user).value("arith.trunci", [offset], None, kind)
    if op.name in ("arith.extsi", "arith.extui") and element_of(op.operand.type) == I32:
        return op.operand
    if op.name == "arith.constant":
        low = op.attributes["value"] & 0xFFFFFFFF
        return Builder.before(op).constant(low - (low >> 31 << 32), kind)
    if len(offset.uses) == 1 and op.name in (*_LOW_HALVES, *_MOVES):
        operands = [_narrow(value, op) for value in op.operands]
        attributes = dict(op.attributes) if op.name in _MOVES else facts(op)
        return Builder.before(op).value(op.name, operands, attributes, kind)
    return Builder.after(op).value("arith.trunci", [offset], facts(op), kind)
