"""sum_in_dots: a product that is only added to something is summed into that, as tensor cores do: x + dot a, b, 0 => dot a, b, x."""

from __future__ import annotations

from kernelpack.ir.core import Builder, Operation
from kernelpack.ir.dialect import attribute, operand
from kernelpack.ir.types import F32, I32, element_of
from kernelpack.ir.views import factors
from kernelpack.passes.canonicalize.arithmetic import constant_of

_SUMS = {"arith.addf": F32, "arith.addi": I32}


def sum_in_dots(module: Operation) -> None:
    """Rewrites a module in place.

    Floats are then rounded in another order, which tl.dot leaves open. What adds up products of 8-bit floats by itself does so
    because tensor cores keep fewer bits of their sums: that stays.
    """
    for op in list(module.walk()):
        if op.name in _SUMS and element_of(op.result.type) == _SUMS[op.name]:
            lhs, rhs = op.operands
            for value, other in ((lhs, rhs), (rhs, lhs)):
                dot = value.defining_op
                if dot is not None and _is_summand(dot, op):
                    total = Builder.before(op).value("tt.dot", [*factors(dot), other], dot.attributes)
                    total.name = op.result.name
                    op.replace_with(total)
                    dot.erase()
                    break


def _is_summand(dot: Operation, addition: Operation) -> bool:
    """Whether an operation is a product that begins at zero and goes into one addition, which runs as often."""
    return (
        dot.name == "tt.dot"
        and dot.result.users() == [addition]
        and dot.parent is addition.parent
        and constant_of(operand(dot, "c")) == 0
        and not attribute(dot, "max_num_imprecise_acc")
    )
