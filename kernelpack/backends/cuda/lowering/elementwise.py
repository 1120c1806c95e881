"""Elementwise operations of NVIDIA's GPUs: what they share with others, and their own rounding, division and functions."""

from __future__ import annotations

from kernelpack.backends.cuda.lowering.math import MATH, scaled_reciprocal
from kernelpack.backends.gpu.lowering import elementwise as shared
from kernelpack.backends.gpu.lowering.elementwise import Element, Lower, convert_float, elementwise
from kernelpack.backends.gpu.lowering.state import Lowering, register_type
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute
from kernelpack.llvm.text import Val


def _float_cast(state: Lowering, op: Operation, values: list[Val]) -> Val:
    target = register_type(op.result.type)
    if attribute(op, "rounding") == "rtz":
        return _round_to_zero(state, values[0], target)
    return convert_float(state, values[0], target)


def _round_to_zero(state: Lowering, value: Val, target: str) -> Val:
    value = convert_float(state, value, "float") if value.type in ("half", "bfloat") else value
    if value.type == "float" and target == "bfloat":
        return state.emit.call("bfloat", "llvm.nvvm.f2bf16.rz", [value])
    if value.type == "float" and target == "half":
        bits = state.asm("i16", "cvt.rz.f16.f32 $0, $1;", "=h,f", [value], pure=True)
        return state.emit.cast("bitcast", bits, "half")
    if value.type == "double" and target == "float":
        return state.emit.call("float", "llvm.nvvm.d2f.rz", [value])
    if value.type == "double":
        return _round_to_zero(state, state.emit.call("float", "llvm.nvvm.d2f.rz", [value]), target)
    return convert_float(state, value, target)


def lower_division(state: Lowering, op: Operation) -> None:
    """Divides every register. What several are divided by has one reciprocal, with the bits that div.full would give: two instructions
    an element instead of three, and the assembler need not find what they have in common."""
    numerators, divisors = (state[operand] for operand in op.operands)
    kind = numerators[0].type
    if kind == "double" or 4 * len(set(divisors)) > len(numerators):
        _DIVISION(state, op)
        return
    emit = state.emit
    reciprocals: dict[Val, tuple[Val, Val]] = {}
    results: list[Val] = []
    for numerator, divisor in zip(numerators, divisors, strict=True):
        if divisor not in reciprocals:
            reciprocals[divisor] = scaled_reciprocal(state, emit.cast("fpext", divisor, "float"))
        scale, reciprocal = reciprocals[divisor]
        scaled = emit.binary("fmul", emit.cast("fpext", numerator, "float"), scale)
        results.append(emit.cast("fptrunc", emit.binary("fmul", scaled, reciprocal), kind))
    state[op.result] = results


def _float_to_int(name: str, letter: str) -> Element:
    """Conversions towards zero that saturate and take NaN to 0. LLVM does not know that an instruction does so for few bits."""

    def lower(state: Lowering, op: Operation, values: list[Val]) -> Val:
        target = register_type(op.result.type)
        if target not in ("i8", "i16") or values[0].type == "double":
            return shared.ELEMENTWISE[name](state, op, values)
        bits = target.removeprefix("i")
        value = convert_float(state, values[0], "float")
        number = state.asm("i32", f"cvt.rzi.{letter}{bits}.f32 $0, $1;", "=r,f", [value], pure=True)
        return state.emit.cast("trunc", number, target)

    return lower


_DIVISION = elementwise(MATH["arith.divf"])
ELEMENTWISE: dict[str, Element] = {**shared.ELEMENTWISE, **MATH, "tt.fp_to_fp": _float_cast}
ELEMENTWISE |= {"arith.fptosi": _float_to_int("arith.fptosi", "s"), "arith.fptoui": _float_to_int("arith.fptoui", "u")}
LOWERED: dict[str, Lower] = {name: elementwise(row) for name, row in ELEMENTWISE.items()} | {"arith.divf": lower_division}
