"""Rewrites operations that others express: concatenation as join, transpose and reshape; products of 8-bit floats as bfloat16 ones."""

from __future__ import annotations

from kernelpack.ir.core import Builder, Operation, Value
from kernelpack.ir.dialect import operand, replace_operand
from kernelpack.ir.types import BF16, bit_width, is_float, shape_of, with_element


def expand_ops(module: Operation) -> Operation:
    """Rewrites a module in place and returns it."""
    for op in list(module.walk()):
        if op.name == "tt.cat":
            _expand_cat(op)
        elif op.name == "tt.dot" and is_float(operand(op, "a").type):
            for name in ("a", "b"):
                tile = operand(op, name)
                if bit_width(tile.type) == 8:
                    replace_operand(op, name, _widened(Builder.before(op), tile))
    return module


def _expand_cat(op: Operation) -> None:
    builder = Builder.before(op)
    joined = builder.value("tt.join", op.operands)
    rank = len(shape_of(joined.type))
    first = builder.value("tt.trans", [joined], {"order": (rank - 1, *range(rank - 1))})
    whole = builder.value("tt.reshape", [first], None, op.result.type)
    op.result.replace_all_uses_with(whole)
    op.erase()


def _widened(builder: Builder, value: Value) -> Value:
    """Returns 8-bit floats as bfloat16, which holds each of them."""
    return builder.value("tt.fp_to_fp", [value], None, with_element(value.type, BF16))
