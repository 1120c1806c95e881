"""Elementwise operations: one table from ttir to LLVM, applied to every register of a tile. A vendor adds what its hardware does."""

from __future__ import annotations

from collections.abc import Callable

from kernelpack.backends.gpu.lowering.state import Lowering, memory_type, register_type, repeated_registers
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute, operand, pointee_of
from kernelpack.ir.types import TensorType, Type, bit_width
from kernelpack.llvm.text import Val, literal, suffix

Lower = Callable[[Lowering, Operation], None]
Element = Callable[[Lowering, Operation, list[Val]], Val]
"""Lowers one element: takes the operands' registers, returns the result's."""


def _opcode(opcode: str, *, float: bool = False) -> Element:
    def lower(state: Lowering, op: Operation, values: list[Val]) -> Val:
        flags = " contract" if float and state.options.enable_fp_fusion else ""
        return state.emit.binary(opcode + flags, *values)

    return lower


def _divide(opcode: str) -> Element:
    """Integer division that is defined for every divisor, as hardware has it: LLVM may assume that what it divides by is not
    zero, and would drop the kernel's own tests for that.
    """
    signed = opcode.startswith("s")

    def lower(state: Lowering, op: Operation, values: list[Val]) -> Val:
        emit, (x, divisor) = state.emit, values
        positive = isinstance(op.result.type, TensorType) and state.facts[operand(op, "lhs")].nonnegative
        if not divisor.name.startswith("%") and int(divisor.name) not in (0, -1):
            unsigned = signed and positive and int(divisor.name) > 0  # a shift or a mask, where the sign needs more
            return emit.binary("u" + opcode[1:] if unsigned else opcode, x, divisor)
        one, zero = literal(1, x.type), literal(0, x.type)
        safe = emit.select(emit.compare("icmp", "eq", divisor, zero), one, divisor)
        if not signed or positive:
            return emit.binary(opcode, x, safe)
        # the smallest integer divided by -1 overflows: x / -1 is -x, the remainder 0
        negates = emit.compare("icmp", "eq", divisor, literal(-1, x.type))
        result = emit.binary(opcode, x, emit.select(negates, one, safe))
        return emit.select(negates, emit.binary("sub", zero, x), result) if opcode == "sdiv" else result

    return lower


def intrinsic(name: str) -> Element:
    """An LLVM intrinsic overloaded on its type."""

    def lower(state: Lowering, op: Operation, values: list[Val]) -> Val:
        return state.emit.call(values[0].type, f"llvm.{name}.{suffix(values[0].type)}", values)

    return lower


def through_float(lower: Element) -> Element:
    """Computes 16-bit floats in float32."""

    def wrapped(state: Lowering, op: Operation, values: list[Val]) -> Val:
        kind = values[0].type
        if kind not in ("half", "bfloat"):
            return lower(state, op, values)
        wide = [state.emit.cast("fpext", value, "float") for value in values]
        return state.emit.cast("fptrunc", lower(state, op, wide), kind)

    return wrapped


def _absolute_int(state: Lowering, op: Operation, values: list[Val]) -> Val:
    return state.emit.call(values[0].type, f"llvm.abs.{values[0].type}", [values[0], Val("i1", "false")])


def _absolute(state: Lowering, op: Operation, values: list[Val]) -> Val:
    if values[0].type == "i8":  # the bits of an 8-bit float
        return state.emit.binary("and", values[0], Val("i8", "127"))
    return intrinsic("fabs")(state, op, values)


def _cast(opcode: str) -> Element:
    return lambda state, op, values: state.emit.cast(opcode, values[0], register_type(op.result.type))


def _compare_int(state: Lowering, op: Operation, values: list[Val]) -> Val:
    return state.emit.compare("icmp", op.attributes["predicate"], *values)


def _compare_float(state: Lowering, op: Operation, values: list[Val]) -> Val:
    return state.emit.compare("fcmp", op.attributes["predicate"], *values)


def convert_float(state: Lowering, value: Val, target: str) -> Val:
    """Converts between floating-point types with round to nearest even."""
    widths = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
    before, after = widths[value.type], widths[target]
    if before == after == 16 and value.type != target:
        return convert_float(state, convert_float(state, value, "float"), target)
    if before == after:
        return value
    if before == 64 and after == 16:  # one rounding only: LLVM has the double to half conversion, bfloat goes through float
        if target == "half":
            return state.emit.cast("fptrunc", value, target)
        return state.emit.cast("fptrunc", round_to_odd(state, value), "bfloat")
    return state.emit.cast("fpext" if after > before else "fptrunc", value, target)


def round_to_odd(state: Lowering, value: Val) -> Val:
    """Returns a double as a float that is odd where anything was cut off, so that a second rounding is as if it were the only one
    (Boldo and Melquiond, 2008)."""
    emit = state.emit
    near = emit.cast("fptrunc", value, "float")
    back = emit.cast("fpext", near, "double")
    bits = emit.cast("bitcast", near, "i32")
    magnitude_near = emit.call("double", "llvm.fabs.f64", [back])
    magnitude = emit.call("double", "llvm.fabs.f64", [value])
    above = emit.compare("fcmp", "ogt", magnitude_near, magnitude)
    truncated = emit.select(above, emit.binary("sub", bits, literal(1, "i32")), bits)
    inexact = emit.compare("fcmp", "one", back, value)
    odd = emit.select(inexact, emit.binary("or", truncated, literal(1, "i32")), bits)
    return emit.cast("bitcast", odd, "float")


def _float_cast(state: Lowering, op: Operation, values: list[Val]) -> Val:
    return convert_float(state, values[0], register_type(op.result.type))


def _int_to_float(opcode: str) -> Element:
    def lower(state: Lowering, op: Operation, values: list[Val]) -> Val:
        target = register_type(op.result.type)
        if target != "bfloat":
            return state.emit.cast(opcode, values[0], target)
        wide = "double" if bit_width(op.operand.type) > 24 else "float"  # exact (below 2^53), so that only one rounding happens
        return convert_float(state, state.emit.cast(opcode, values[0], wide), target)

    return lower


def _float_to_int(name: str) -> Element:
    """Conversions towards zero that saturate and take NaN to 0."""

    def lower(state: Lowering, op: Operation, values: list[Val]) -> Val:
        value = convert_float(state, values[0], "float") if values[0].type == "bfloat" else values[0]
        target = register_type(op.result.type)
        through = "i8" if target == "i1" else target  # booleans come out turned round where LLVM has code for them
        number = state.emit.call(through, f"llvm.{name}.sat.{through}.{suffix(value.type)}", [value])
        if target != "i1":
            return number
        return state.emit.compare("icmp", "slt" if name == "fptosi" else "ne", number, literal(0, "i8"))

    return lower


def _negate(state: Lowering, op: Operation, values: list[Val]) -> Val:
    return state.emit.op(values[0].type, f"fneg {values[0]}")


def _select(state: Lowering, op: Operation, values: list[Val]) -> Val:
    return state.emit.select(*values)


def _bitcast(state: Lowering, op: Operation, values: list[Val]) -> Val:
    return state.from_integer(state.as_integer(values[0]), register_type(op.result.type))


def _addptr(state: Lowering, op: Operation, values: list[Val]) -> Val:
    pointer, offset = values
    return state.emit.op(pointer.type, f"getelementptr {memory_pointee(op.result.type)}, {pointer}, {offset}")


def memory_pointee(kind: Type) -> str:
    """Returns the LLVM type that a pointer's offsets count."""
    return memory_type(pointee_of(kind))


def _clamp(state: Lowering, op: Operation, values: list[Val]) -> Val:
    x, low, high = values
    upper, lower = ("minimum", "maximum") if attribute(op, "propagate_nan") == "all" else ("minnum", "maxnum")
    bounded = intrinsic(lower)(state, op, [x, low])
    return intrinsic(upper)(state, op, [bounded, high])


def _multiply_high(state: Lowering, op: Operation, values: list[Val]) -> Val:
    emit, width = state.emit, bit_width(op.result.type)
    wide = f"i{2 * width}"
    product = emit.binary("mul", *(emit.cast("zext", value, wide) for value in values))
    return emit.cast("trunc", emit.binary("lshr", product, Val(wide, str(width))), values[0].type)


def _divide_precisely(state: Lowering, op: Operation, values: list[Val]) -> Val:
    return state.emit.binary("fdiv", *values)


ELEMENTWISE: dict[str, Element] = {
    **{f"arith.{name}": _opcode(opcode) for name, opcode in {
        "addi": "add", "subi": "sub", "muli": "mul",
        "andi": "and", "ori": "or", "xori": "xor", "shli": "shl", "shrsi": "ashr", "shrui": "lshr",
    }.items()},
    **{f"arith.{name}": _divide(opcode) for name, opcode in {
        "divsi": "sdiv", "divui": "udiv", "remsi": "srem", "remui": "urem",
    }.items()},
    **{f"arith.{name}": _opcode(opcode, float=True) for name, opcode in {
        "addf": "fadd", "subf": "fsub", "mulf": "fmul",
    }.items()},
    **{f"arith.{name}": intrinsic(llvm) for name, llvm in {
        "maxsi": "smax", "maxui": "umax", "minsi": "smin", "minui": "umin",
        "maximumf": "maximum", "minimumf": "minimum", "maxnumf": "maxnum", "minnumf": "minnum",
    }.items()},
    "arith.negf": _negate,
    "arith.cmpi": _compare_int,
    "arith.cmpf": _compare_float,
    "arith.select": _select,
    "arith.extsi": _cast("sext"),
    "arith.extui": _cast("zext"),
    "arith.trunci": _cast("trunc"),
    "arith.extf": _float_cast,
    "arith.truncf": _float_cast,
    "arith.sitofp": _int_to_float("sitofp"),
    "arith.uitofp": _int_to_float("uitofp"),
    "arith.fptosi": _float_to_int("fptosi"),
    "arith.fptoui": _float_to_int("fptoui"),
    "arith.bitcast": _bitcast,
    "tt.bitcast": _bitcast,
    "tt.int_to_ptr": _cast("inttoptr"),
    "tt.ptr_to_int": _cast("ptrtoint"),
    "tt.addptr": _addptr,
    "tt.clampf": _clamp,
    "tt.mulhiui": _multiply_high,
    "tt.precise_divf": _divide_precisely,
    "math.absf": _absolute,
    "math.absi": _absolute_int,
    "math.ceil": intrinsic("ceil"),
    "math.floor": intrinsic("floor"),
    "math.fma": intrinsic("fma"),
    "math.sqrt": through_float(intrinsic("sqrt")),
    "tt.precise_sqrt": through_float(intrinsic("sqrt")),
}  # fmt: skip


def elementwise(lower: Element) -> Lower:
    """Returns what applies a row to every register; scalar operands (the condition of a select) serve all of them.

    What is known to be the same for neighbours, such as a mask that ends at a multiple of 16, is computed for the first of them.
    """

    def apply(state: Lowering, op: Operation) -> None:
        operands = [state[operand] for operand in op.operands]
        repeated = repeated_registers(state, op.result)
        results: list[Val] = []
        for index in range(max(map(len, operands))):
            if index & repeated:
                results.append(results[index & ~repeated])
            else:
                results.append(lower(state, op, [registers[index if len(registers) > 1 else 0] for registers in operands]))
        state[op.result] = results

    return apply
