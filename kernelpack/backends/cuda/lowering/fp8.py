"""Conversions of 8-bit floats, which lie in registers as their bits: by the hardware in pairs where it has them, by integer arithmetic
elsewhere.

Narrowing takes what is too large, infinities too, to the largest finite value (PTX ISA, cvt.satfinite).
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelpack.backends.cuda.lowering.elementwise import LOWERED
from kernelpack.backends.cuda.lowering.state import CudaLowering
from kernelpack.backends.cuda.machine.features import Feature
from kernelpack.backends.cuda.machine.warpgroup import SMALL_FLOATS
from kernelpack.backends.gpu.lowering.elementwise import convert_float, round_to_odd
from kernelpack.backends.gpu.lowering.linear_code import i32
from kernelpack.backends.gpu.lowering.state import register_type
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute
from kernelpack.ir.formats import bias, max_finite, nan_bits
from kernelpack.ir.types import F8E5M2, FloatType, bit_width, element_of
from kernelpack.llvm.text import Val, literal

_F16_BIAS, _F32_BIAS, _F32_MANTISSA = 15, 127, 23


def lower_float_cast(state: CudaLowering, op: Operation) -> None:
    """Lowers tt.fp_to_fp for all floats."""
    before, after = element_of(op.operand.type), element_of(op.result.type)
    assert isinstance(before, FloatType)
    assert isinstance(after, FloatType)
    if bit_width(before) > 8 and bit_width(after) > 8:
        LOWERED[op.name](state, op)
        return
    registers = state[op.operand]
    if bit_width(before) == 8:
        halves = widen(state, registers, before)
        if bit_width(after) == 8:
            state[op.result] = narrow(state, [convert_float(state, half, "float") for half in halves], after, "rtne")
        else:
            state[op.result] = [convert_float(state, half, register_type(after)) for half in halves]
        return
    rounding = attribute(op, "rounding")
    floats = [round_to_odd(state, x) if x.type == "double" else convert_float(state, x, "float") for x in registers]
    state[op.result] = narrow(state, floats, after, rounding)


def widen(state: CudaLowering, registers: Sequence[Val], kind: FloatType) -> list[Val]:
    """Returns 8-bit floats as halves, which hold them all."""
    emit = state.emit
    if kind == F8E5M2:  # the upper byte of a half
        wide = [emit.binary("shl", emit.cast("zext", bits, "i16"), Val("i16", "8")) for bits in registers]
        return [emit.cast("bitcast", bits, "half") for bits in wide]
    if not _in_hardware(state, kind):
        return [_widen_e4m3(state, bits, kind) for bits in registers]
    found: list[Val] = []
    for pair in _pairs(registers):
        word = state.pack(pair, "i16")
        vector = emit.call("<2 x half>", f"llvm.nvvm.{SMALL_FLOATS[kind]}x2.to.f16x2.rn", [word])
        found += [emit.extract(vector, index) for index in range(2)]
    return found[: len(registers)]


def _in_hardware(state: CudaLowering, kind: FloatType) -> bool:
    return Feature.FP8_CONVERSIONS in state.features.has and kind in SMALL_FLOATS


def _widen_e4m3(state: CudaLowering, bits: Val, kind: FloatType) -> Val:
    """The fields of a half, whose exponent has another bias; subnormal numbers come out right too."""
    emit = state.emit
    wide = emit.cast("zext", bits, "i16")
    magnitude = emit.binary("and", wide, Val("i16", "127"))
    fields = emit.cast("bitcast", emit.binary("shl", magnitude, Val("i16", "7")), "half")
    scale = 2.0 ** (_F16_BIAS - bias(kind))
    value = emit.binary("fmul", fields, literal(scale, "half")) if scale != 1.0 else fields
    if (nan := nan_bits(kind)) is not None:
        is_nan = emit.compare("icmp", "eq", magnitude, Val("i16", str(nan)))
        value = emit.select(is_nan, literal(float("nan"), "half"), value)
    value = emit.cast("bitcast", value, "i16")
    sign = emit.binary("shl", emit.binary("and", wide, Val("i16", "128")), Val("i16", "8"))
    return emit.cast("bitcast", emit.binary("or", value, sign), "half")


def narrow(state: CudaLowering, registers: Sequence[Val], kind: FloatType, rounding: str) -> list[Val]:
    """Returns float32 registers as 8-bit floats."""
    if not _in_hardware(state, kind) or rounding != "rtne":
        return [_narrow_by_integers(state, value, kind, rounding) for value in registers]
    found: list[Val] = []
    for low, high in _pairs(registers):  # the first operand becomes the upper half
        word = state.emit.call("i16", f"llvm.nvvm.ff.to.{SMALL_FLOATS[kind]}x2.rn", [high, low])
        found += state.unpack(word, "i8", 2)
    return found[: len(registers)]


def _narrow_by_integers(state: CudaLowering, value: Val, kind: FloatType, rounding: str) -> Val:
    emit = state.emit
    cut = _F32_MANTISSA - kind.mantissa
    offset = bias(kind)
    bits = emit.cast("bitcast", value, "i32")
    sign = emit.binary("and", emit.binary("lshr", bits, i32(24)), i32(128))
    magnitude = emit.call("float", "llvm.fabs.f32", [value])
    bounded = emit.call("float", "llvm.minnum.f32", [magnitude, literal(max_finite(kind), "float")])
    # normal numbers: round the bits that are cut off into the rest, then move the exponent
    whole = emit.cast("bitcast", bounded, "i32")
    if rounding == "rtne":
        odd = emit.binary("and", emit.binary("lshr", whole, i32(cut)), i32(1))
        whole = emit.binary("add", emit.binary("add", whole, i32((1 << cut - 1) - 1)), odd)
    normal = emit.binary("sub", emit.binary("lshr", whole, i32(cut)), i32(_F32_BIAS - offset << kind.mantissa))
    # subnormal ones are whole multiples of the smallest: of one when added to a number whose last place that is
    quantum = 2.0 ** (1 - offset - kind.mantissa)
    if rounding == "rtne":
        magic = quantum * 2.0**_F32_MANTISSA
        added = emit.cast("bitcast", emit.binary("fadd", bounded, literal(magic, "float")), "i32")
        subnormal = emit.binary("and", added, i32((1 << _F32_MANTISSA) - 1))
    else:
        subnormal = emit.cast("fptoui", emit.binary("fmul", bounded, literal(1 / quantum, "float")), "i32")
    is_small = emit.compare("fcmp", "olt", bounded, literal(2.0 ** (1 - offset), "float"))
    result = emit.select(is_small, subnormal, normal)
    is_nan = emit.compare("fcmp", "uno", value, value)
    return emit.cast("trunc", emit.binary("or", emit.select(is_nan, i32(127), result), sign), "i8")


def _pairs(registers: Sequence[Val]) -> list[tuple[Val, Val]]:
    """Returns neighbours; the last one without a neighbour is its own."""
    return [(registers[at], registers[min(at + 1, len(registers) - 1)]) for at in range(0, len(registers), 2)]
