"""What operations cost on one vector, in simple vector instructions."""

from __future__ import annotations

from kernelpack.backends.cpu.math.library_functions import calls_library, is_formula, operation_for
from kernelpack.ir.core import Operation
from kernelpack.ir.types import F64, element_of

LOAD = 3
_FUNCTIONS = {
    **dict.fromkeys(("math.exp", "math.exp2"), 12),
    **dict.fromkeys(("math.log", "math.log2", "math.tanh"), 20),
    **dict.fromkeys(("math.erf", "math.log1p"), 35),
    **dict.fromkeys(("math.sin", "math.cos"), 40),
}
_COST = {
    **_FUNCTIONS,
    **dict.fromkeys(("arith.divf", "tt.precise_divf", "math.sqrt", "math.rsqrt", "tt.precise_sqrt", "arith.remf"), 6),
    **dict.fromkeys(("arith.divsi", "arith.divui", "arith.remsi", "arith.remui"), 20),
    "tt.load": LOAD,
    "tt.gather": 3,
}
_FORMULA = 80  # of float32_functions
_C_LIBRARY = 400  # one element after the other


def cost_of(op: Operation) -> int | None:
    """Returns the cost of an operation where it is listed; others of elements take an instruction or a few."""
    name = op.name
    if name == "tt.extern_elementwise":
        symbol = op.attributes["symbol"]
        if is_formula(symbol):
            return _FORMULA
        if calls_library(symbol):
            return _C_LIBRARY
        name = operation_for(symbol) or name
    if name in _FUNCTIONS and element_of(op.result.type) == F64:
        return _C_LIBRARY
    return _COST.get(name)
