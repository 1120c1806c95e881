"""Elementary functions: hardware instructions where they are accurate, NVIDIA's libdevice elsewhere."""

from __future__ import annotations

from kernelpack.backends.gpu.lowering.elementwise import Element, through_float
from kernelpack.backends.gpu.lowering.state import Lowering
from kernelpack.ir.core import Operation
from kernelpack.ir.libdevice import LIBDEVICE_PREFIX
from kernelpack.llvm.text import Val, literal

_LOG2_E = 1.4426950408889634
_LN2 = 0.6931471805599453
_LN2_LOW = -1.9046542e-09  # ln 2 - float32(ln 2)
_EXP_LIMIT = 88.72283935546875  # from here on float32 exp is infinite; its float32 product with log2 e is 128


def _libdevice(name: str) -> Element:
    """A function of libdevice: `name` for double, `namef` for float."""

    def lower(state: Lowering, op: Operation, values: list[Val]) -> Val:
        function = LIBDEVICE_PREFIX + name + ("f" if values[0].type == "float" else "")
        return state.emit.call(values[0].type, function, values)

    return through_float(lower)


def _exp2(state: Lowering, op: Operation, values: list[Val]) -> Val:
    """2^x within 2 ulp; see _power_of_two."""
    return _libdevice("exp2")(state, op, values) if values[0].type == "double" else _power_of_two(state, values[0])


def _power_of_two(state: Lowering, exponent: Val) -> Val:
    """ex2.approx: results below 2^-126 become 0, unless enable_reflect_ftz is off."""
    flush = ".ftz" if state.options.enable_reflect_ftz else ""
    return state.emit.call("float", f"llvm.nvvm.ex2.approx{flush}.f", [exponent])


def _exp(state: Lowering, op: Operation, values: list[Val]) -> Val:
    """exp(x) = 2^h (1 + d): h is x log2 e rounded, d = x - h ln 2 what rounding lost, found by two additions; about 2 ulp.

    2^h alone would be wrong by a relative |x| 2^-24.
    """
    if values[0].type == "double":
        return _libdevice("exp")(state, op, values)
    emit = state.emit

    def number(value: float) -> Val:
        return literal(value, "float")

    # NaN passes; 2^h (1 + d) would be NaN where 2^h is infinite and d negative, which it is not at the limit
    x = emit.call("float", "llvm.minimum.f32", [values[0], number(_EXP_LIMIT)])
    high = emit.binary("fmul", x, number(_LOG2_E))
    lost = emit.call("float", "llvm.fma.f32", [high, number(-_LN2), x])
    lost = emit.call("float", "llvm.fma.f32", [high, number(-_LN2_LOW), lost])
    lost = emit.call("float", "llvm.minnum.f32", [lost, number(1.0)])  # of -inf, NaN or infinite: 2^h is 0 there
    power = _power_of_two(state, high)
    return emit.call("float", "llvm.fma.f32", [power, lost, power])


def _divide(state: Lowering, op: Operation, values: list[Val]) -> Val:
    """div.full: 2 ulp in a third of the instructions of IEEE division, which is tt.precise_divf."""
    if values[0].type == "double":
        return state.emit.binary("fdiv", *values)
    return state.emit.call("float", "llvm.nvvm.div.full", values)


def scaled_reciprocal(state: Lowering, divisor: Val) -> tuple[Val, Val]:
    """Returns a power of two and the reciprocal of the float `divisor` times it: x / divisor is x times both, as div.full has it.

    Scaled so, a divisor whose reciprocal float32 cannot hold has one that it can.
    """
    emit = state.emit
    magnitude = emit.call("float", "llvm.fabs.f32", [divisor])

    def number(exponent: int) -> Val:
        return literal(2.0**exponent, "float")

    small = emit.select(emit.compare("fcmp", "olt", magnitude, number(-126)), number(24), number(0))
    scale = emit.select(emit.compare("fcmp", "ogt", magnitude, number(126)), number(-2), small)
    return scale, emit.call("float", "llvm.nvvm.rcp.approx.ftz.f", [emit.binary("fmul", divisor, scale)])


def _rsqrt(state: Lowering, op: Operation, values: list[Val]) -> Val:
    if values[0].type == "double":
        return _libdevice("rsqrt")(state, op, values)
    return state.emit.call("float", "llvm.nvvm.rsqrt.approx.f", values)


def _remainder(state: Lowering, op: Operation, values: list[Val]) -> Val:
    return _libdevice("fmod")(state, op, values)


MATH: dict[str, Element] = {
    "math.rsqrt": through_float(_rsqrt),
    "math.exp": through_float(_exp),
    "math.exp2": through_float(_exp2),
    **{f"math.{name}": _libdevice(name) for name in ("cos", "erf", "log", "log1p", "log2", "sin", "tanh")},
    "arith.divf": through_float(_divide),
    "arith.remf": _remainder,
}
