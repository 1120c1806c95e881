"""Elementary functions: LLVM's where it has code for them that is accurate, polynomials of kernelpack's elsewhere.

The polynomials are those of the CPU backend, whose errors docs/accuracy.md has: they are made of operations that IEEE 754 defines.
"""

from __future__ import annotations

from kernelpack.backends.gpu.lowering.elementwise import ELEMENTWISE, Element, convert_float, intrinsic, through_float
from kernelpack.backends.gpu.lowering.state import Lowering, register_type
from kernelpack.ir.core import Operation
from kernelpack.llvm.text import Val, literal
from kernelpack.llvm.vector_math import FUNCTIONS, VectorMath


def _polynomial(name: str) -> Element:
    def lower(state: Lowering, op: Operation, values: list[Val]) -> Val:
        (value,) = values
        return FUNCTIONS[name](VectorMath(state.emit, value.type), value)

    return through_float(lower)


def _rsqrt(state: Lowering, op: Operation, values: list[Val]) -> Val:
    root = intrinsic("sqrt")(state, op, values)
    return state.emit.binary("fdiv", literal(1.0, root.type), root)


def _divide(state: Lowering, op: Operation, values: list[Val]) -> Val:
    return state.emit.binary("fdiv", *values)


def _float_cast(state: Lowering, op: Operation, values: list[Val]) -> Val:
    return convert_float(state, values[0], register_type(op.result.type))


_OF_FLOAT: dict[str, Element] = {
    **{f"math.{name}": through_float(intrinsic(name)) for name in ("exp", "exp2", "log", "log2")},
    **{f"math.{name}": _polynomial(f"math.{name}") for name in ("erf", "log1p", "tanh")},
}
SINGLE = frozenset(_OF_FLOAT)
"""What is lowered for floats of 16 and 32 bits alone."""
ELEMENTS: dict[str, Element] = {
    **ELEMENTWISE,
    **_OF_FLOAT,
    "math.rsqrt": through_float(_rsqrt),
    "arith.divf": through_float(_divide),
    "tt.fp_to_fp": _float_cast,
}
