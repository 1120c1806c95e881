"""Emits what a kernel tells a person: printing of values, and what ends the program and becomes an error of the launch: assertions that
do not hold, accesses outside of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernelpack.backends.cpu.emit.elementwise import Lowering
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import attribute
from kernelpack.ir.types import F64, Type, bit_width, element_of, is_float, is_pointer
from kernelpack.llvm.text import Emitter, Val, literal, string_constant

_STANDARD_OUTPUT = 1
_FAILED, _ADDRESS, _PARAMETER = 24, 32, 40
"""Where CpuLaunch (csrc/kernels/cpu.h) has what failed, and of an access its address and parameter."""


def emit_print(
    em: Emitter, op: Operation, values: Sequence[Val], place: Sequence[Val], shape: Sequence[int], program: Sequence[Val]
) -> None:
    """Prints one element of every operand: the program, where the element is in its tile, the prefix and the value."""
    prefix = str(op.attributes["prefix"]).replace("%", "%%")
    widths = [len(str(extent - 1)) for extent in shape]
    where = f"pid (%u, %u, %u) idx ({', '.join(f'%{width}d' for width in widths)})"
    if not values:
        _print(em, f"{where} {prefix}\n", [*program, *place])
    signs, hexadecimal = attribute(op, "is_signed"), bool(attribute(op, "hex"))
    for number, (value, operand) in enumerate(zip(values, op.operands, strict=True)):
        which = f"(operand {number}) " if len(values) > 1 else ""
        kind = element_of(operand.type)
        text = f"{where} {prefix}{which}{_conversion(kind, bool(signs[number]), hexadecimal)}\n"
        _print(em, text, [*program, *place, _promoted(em, value, kind, bool(signs[number]))])


def emit_assert(em: Emitter, op: Operation, holds: Val) -> None:
    """Leaves a message in the launch and returns from the kernel unless an i1 holds."""
    failed, after = em.new_label("failed"), em.new_label("holds")
    em.branch(holds, after, failed)
    em.label(failed)
    message = _text(em, f"{_place(op)}assertion failed: {op.attributes['message']}")
    em.line(f"store atomic {message}, {em.offset(Val('ptr', '%launch'), _FAILED)} monotonic, align 8")
    em.line("ret void")
    em.label(after)


def emit_check(em: Emitter, op: Operation, values: Sequence[Val], lanes: int) -> None:
    """Leaves in the launch which access is not inside, and returns from the kernel, unless all lanes are inside."""
    inside, address = values
    holds = em.call("i1", f"llvm.vector.reduce.and.v{lanes}i1", [inside]) if lanes > 1 else inside
    failed, first, over, after = (em.new_label(name) for name in ("outside", "first", "over", "inside"))
    em.branch(holds, after, failed)
    em.label(failed)
    slot = em.offset(Val("ptr", "%launch"), _FAILED)
    message = _text(em, f"{_place(op)}{op.attributes['message']}")
    old = em.op("{ ptr, i1 }", f"cmpxchg {slot}, ptr null, {message} monotonic monotonic, align 8")
    em.branch(em.op("i1", f"extractvalue {old}, 1"), first, over)  # of several threads, one tells
    em.label(first)
    lowest = address
    if lanes > 1:
        beyond = em.select(inside, literal(-1, f"<{lanes} x i64>"), address)
        lowest = em.call("i64", f"llvm.vector.reduce.umin.v{lanes}i64", [beyond])
    em.store(lowest, em.offset(Val("ptr", "%launch"), _ADDRESS), 8)
    parameter, *_ = op.attributes["parameters"]
    em.store(literal(parameter, "i64"), em.offset(Val("ptr", "%launch"), _PARAMETER), 8)
    em.jump(over)
    em.label(over)
    em.line("ret void")
    em.label(after)


def _place(op: Operation) -> str:
    """Returns the name of the kernel's file, which is the same wherever it is compiled, and the line."""
    source = op.location.source
    return f"{Path(source.file).name}:{source.line}: " if source is not None else ""


def _conversion(kind: Type, signed: bool, hexadecimal: bool) -> str:
    """Returns printf's conversion of a value; integers are widened to 64 bits."""
    if is_pointer(kind):
        return "%p"
    if hexadecimal:
        return f"0x%0{max(1, bit_width(kind) // 4)}llx"
    if is_float(kind):
        return "%f"
    return "%lld" if signed else "%llu"


def as_printed(lowering: Lowering, value: Val, operand: Value) -> Val:
    """Returns a value as `emit_print` takes it: floats as double."""
    kind = element_of(operand.type)
    return lowering.convert(value, kind, F64) if is_float(kind) else value


def _promoted(em: Emitter, value: Val, kind: Type, signed: bool) -> Val:
    """Returns a value as C passes it to a variadic function. Floats come as double."""
    if is_pointer(kind) or value.type == "double":
        return value
    return em.cast("sext" if signed else "zext", value, "i64")


def _text(em: Emitter, text: str) -> Val:
    """Returns where a text that ends in a zero byte lies."""
    name = em.fresh("text").replace("%", "@.")
    em.declarations.add(f"{name} = private unnamed_addr constant {string_constant(text)}")
    return Val("ptr", name)


def _print(em: Emitter, text: str, arguments: Sequence[Val]) -> None:
    em.declarations.add("declare i32 @dprintf(i32, ptr, ...)")
    passed = ", ".join(map(str, [Val("i32", str(_STANDARD_OUTPUT)), _text(em, text), *arguments]))
    em.line(f"{em.fresh('written')} = call i32 (i32, ptr, ...) @dprintf({passed})")
