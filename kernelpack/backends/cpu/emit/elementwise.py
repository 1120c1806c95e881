"""Lowers elementwise operations to LLVM, the same way for scalars and vectors: one table row an operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelpack.backends.cpu.emit import byte_products
from kernelpack.backends.cpu.emit.elements import register_type
from kernelpack.backends.cpu.math import float32_functions, fp8, library_functions
from kernelpack.backends.cpu.math.formula import Number
from kernelpack.ir.core import Attribute, Operation
from kernelpack.ir.dialect import attribute
from kernelpack.ir.formats import nan_bits
from kernelpack.ir.types import BF16, F16, F32, F64, I1, FloatType, Type, bit_width, element_of, is_float
from kernelpack.llvm.text import Emitter, Val, element_type, literal, suffix, vector_type, vector_width
from kernelpack.llvm.vector_math import FUNCTIONS, VectorMath


class Lowering:
    """Lowers operations of one kernel; `fuse` allows a multiplication and an addition to become one fma."""

    def __init__(self, emitter: Emitter, *, fuse: bool, bf16_hardware: bool, int8_pack: int = 1) -> None:
        self.em = emitter
        self.flags = "contract " if fuse else ""
        self.bf16_hardware = bf16_hardware
        self.int8_pack = int8_pack

    def lower(self, op: Operation, arguments: Sequence[Val]) -> Val:
        """Returns the result of an elementwise operation on arguments of one width."""
        width, (*_, last) = max(vector_width(value.type) for value in arguments), op.operands
        return self.apply(op.name, arguments, element_of(last.type), element_of(op.result.type), width, op)

    def apply(
        self, name: str, arguments: Sequence[Val], source: Type, result: Type, width: int, op: Operation | None = None
    ) -> Val:
        """Lowers by name, from elements of type `source` to `result`."""
        if name in ("arith.extf", "arith.truncf", "tt.fp_to_fp"):
            rounding = attribute(op, "rounding") if op is not None and name == "tt.fp_to_fp" else "rtne"
            return self.convert(arguments[0], source, result, rounding)
        if name == "tt.extern_elementwise":
            assert op is not None
            return library_functions.lower(self, op.attributes["symbol"], arguments)
        row = _TABLE[name]
        if is_small(source) and name not in _BITWISE:
            wide = [self.convert(a, source, F32) if element_type(a.type) != "i1" else a for a in arguments]
            inner = F32 if is_float(result) else result
            value = row(self, wide, F32, inner, width, op)
            return self.convert(value, F32, result) if is_float(result) else value
        if is_small(result) and name in ("arith.sitofp", "arith.uitofp"):
            return self.convert(row(self, arguments, source, F32, width, op), F32, result)
        return row(self, arguments, source, result, width, op)

    # ---- float conversions ----

    def convert(self, value: Val, source: Type, result: Type, rounding: Attribute = "rtne") -> Val:
        """Converts between float types, rounding to nearest even or toward zero."""
        if source == result:
            return value
        width = vector_width(value.type)
        kind = register_type(result, width)
        if isinstance(source, FloatType) and source.width == 8:
            return self.convert(fp8.decode(self.em, value, source), F32, result, rounding)
        if source == BF16:
            return self.convert(self._from_bf16(value, width), F32, result, rounding)
        if bit_width(result) > bit_width(source):
            return self.em.cast("fpext", value, kind)
        if source == F64 and is_small(result):
            return self.convert(self._to_odd(value, width), F32, result, rounding)
        if source == F16:
            return self.convert(self.convert(value, F16, F32), F32, result, rounding)
        if rounding == "rtz":
            return self._truncate(value, source, result, width)
        if result == BF16:
            return self._to_bf16(value, width)
        if isinstance(result, FloatType) and result.width == 8:
            return fp8.encode(self.em, value, result)
        return self.em.cast("fptrunc", value, kind)

    def _to_bf16(self, value: Val, width: int) -> Val:
        """Rounds float32 to bfloat16, by integer arithmetic where there is no instruction."""
        em, ints = self.em, vector_type("i32", width)
        if self.bf16_hardware:
            hardware = em.cast("fptrunc", value, vector_type("bfloat", width))
            return em.cast("bitcast", hardware, vector_type("i16", width))
        bits = em.cast("bitcast", value, ints)
        odd = em.binary("and", em.binary("lshr", bits, literal(16, ints)), literal(1, ints))
        rounded = em.binary("add", bits, em.binary("add", odd, literal(0x7FFF, ints)))
        quiet = em.binary("or", bits, literal(0x400000, ints))
        nan = em.compare("fcmp", "uno", value, value)
        chosen = em.binary("lshr", em.select(nan, quiet, rounded), literal(16, ints))
        return em.cast("trunc", chosen, vector_type("i16", width))

    def _from_bf16(self, value: Val, width: int) -> Val:
        wide = vector_type("i32", width)
        shifted = self.em.binary("shl", self.em.cast("zext", value, wide), literal(16, wide))
        return self.em.cast("bitcast", shifted, vector_type("float", width))

    def _to_odd(self, value: Val, width: int) -> Val:
        """Rounds float64 to float32 so that a second rounding to 16 bits comes out as if there had been one only."""
        em, ints = self.em, vector_type("i32", width)
        near = em.cast("fptrunc", value, vector_type("float", width))
        back = em.cast("fpext", near, value.type)
        exact = em.compare("fcmp", "ueq", back, value)
        bits = em.cast("bitcast", near, ints)
        magnitude = em.call(value.type, f"llvm.fabs.{suffix(value.type)}", [value])
        back_magnitude = em.call(value.type, f"llvm.fabs.{suffix(value.type)}", [back])
        above = em.compare("fcmp", "ogt", back_magnitude, magnitude)
        down = em.select(above, em.binary("sub", bits, literal(1, ints)), bits)
        odd = em.binary("or", down, literal(1, ints))
        return em.cast("bitcast", em.select(exact, bits, odd), vector_type("float", width))

    def _truncate(self, value: Val, source: Type, result: Type, width: int) -> Val:
        """Converts toward zero: the nearest value, stepped back where it is larger in magnitude."""
        em = self.em
        assert isinstance(result, FloatType)
        near = self.convert(value, source, result)
        back = self.convert(near, result, source)
        fabs = f"llvm.fabs.{suffix(value.type)}"
        larger = em.compare("fcmp", "ogt", em.call(value.type, fabs, [back]), em.call(value.type, fabs, [value]))
        ints = vector_type(f"i{result.width}", width)
        bits = em.cast("bitcast", near, ints)
        smaller = em.binary("sub", bits, literal(1, ints))
        if nan_bits(result) == 1 << result.width - 1:  # what would be -0 is NaN here
            negative_zero = em.compare("icmp", "eq", smaller, literal(-(1 << result.width - 1), ints))
            smaller = em.select(negative_zero, literal(0, ints), smaller)
        return em.cast("bitcast", em.select(larger, smaller, bits), near.type)


def is_small(kind: Type) -> bool:
    """Whether a float type has no arithmetic of its own: it is done in float32."""
    return isinstance(kind, FloatType) and kind.width < 32


Row = Callable[[Lowering, Sequence[Val], Type, Type, int, Operation | None], Val]


def _binary(opcode: str, flags: bool = False) -> Row:
    def emit(lo: Lowering, args: Sequence[Val], source: Type, result: Type, width: int, op: Operation | None) -> Val:
        return lo.em.binary(f"{opcode} {lo.flags}".strip() if flags else opcode, args[0], args[1])

    return emit


def _intrinsic(name: str, *, extra: str = "") -> Row:
    def emit(lo: Lowering, args: Sequence[Val], source: Type, result: Type, width: int, op: Operation | None) -> Val:
        arguments = [*args, Val(*extra.split())] if extra else list(args)
        return lo.em.call(args[0].type, f"llvm.{name}.{suffix(args[0].type)}", arguments)

    return emit


def _cast(opcode: str) -> Row:
    def emit(lo: Lowering, args: Sequence[Val], source: Type, result: Type, width: int, op: Operation | None) -> Val:
        return lo.em.cast(opcode, args[0], register_type(result, width))

    return emit


def _compare(opcode: str) -> Row:
    def emit(lo: Lowering, args: Sequence[Val], source: Type, result: Type, width: int, op: Operation | None) -> Val:
        assert op is not None
        return lo.em.compare(opcode, op.attributes["predicate"], args[0], args[1])

    return emit


def _select(lo: Lowering, args: Sequence[Val], source: Type, result: Type, width: int, op: Operation | None) -> Val:
    return lo.em.select(args[0], args[1], args[2])


def _divide(opcode: str) -> Row:
    """Integer division and remainder that never trap: x / 0 and the overflowing min / -1 are defined as the interpreter does."""
    signed = opcode in ("sdiv", "srem")

    def emit(lo: Lowering, args: Sequence[Val], source: Type, result: Type, width: int, op: Operation | None) -> Val:
        em, (a, b) = lo.em, args
        kind = a.type
        if not b.name.startswith("%"):  # a constant divisor is known not to trap
            return em.binary(opcode, a, b)
        zero = em.compare("icmp", "eq", b, literal(0, kind))
        unsafe = em.binary("or", zero, em.compare("icmp", "eq", b, literal(-1, kind))) if signed else zero
        divisor = em.select(unsafe, literal(1, kind), b)
        if width > 1 and bit_width(source) <= 32:
            quotient = _divide_by_float(em, a, divisor, signed)
            plain = quotient if opcode.endswith("div") else em.binary("sub", a, em.binary("mul", quotient, divisor))
        else:
            plain = em.binary(opcode, a, divisor)
        if signed:
            negated = em.binary("sub", literal(0, kind), a)
            by_minus_one = negated if opcode == "sdiv" else literal(0, kind)
            plain = em.select(em.compare("icmp", "eq", b, literal(-1, kind)), by_minus_one, plain)
        at_zero = literal(0, kind) if opcode.endswith("div") else a
        return em.select(zero, at_zero, plain)

    return emit


def _divide_by_float(em: Emitter, a: Val, b: Val, signed: bool) -> Val:
    """Divides vectors of up to 32 bits through float64, which holds them exactly; x86 has no integer vector division."""
    double = vector_type("double", vector_width(a.type))
    to, back = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    return em.cast(back, em.binary("fdiv", em.cast(to, a, double), em.cast(to, b, double)), a.type)


def _shift(opcode: str) -> Row:
    """Shifts; by the width or more, left and logical shifts give 0 and arithmetic ones the sign."""

    def emit(lo: Lowering, args: Sequence[Val], source: Type, result: Type, width: int, op: Operation | None) -> Val:
        em, (a, b) = lo.em, args
        if not b.name.startswith("%"):
            return em.binary(opcode, a, b)
        limit = bit_width(source)
        inside = em.compare("icmp", "ult", b, literal(limit, b.type))
        if opcode == "ashr":
            return em.binary(opcode, a, em.select(inside, b, literal(limit - 1, b.type)))
        return em.select(inside, em.binary(opcode, a, em.select(inside, b, literal(0, b.type))), literal(0, a.type))

    return emit


def _to_int(signed: bool) -> Row:
    def emit(lo: Lowering, args: Sequence[Val], source: Type, result: Type, width: int, op: Operation | None) -> Val:
        kind = register_type(result, width)
        if result == I1:
            return lo.em.compare("fcmp", "une", args[0], literal(0.0, args[0].type))
        bits = bit_width(result)
        if bits >= 32:
            name = f"llvm.fpto{'si' if signed else 'ui'}.sat.{suffix(kind)}.{suffix(args[0].type)}"
            return lo.em.call(kind, name, [args[0]])
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        value = args[0]
        value = lo.em.select(lo.em.compare("fcmp", "ord", value, value), value, literal(0.0, value.type))
        for predicate, limit in (("olt", low), ("ogt", high)):
            bound = literal(float(limit), value.type)
            value = lo.em.select(lo.em.compare("fcmp", predicate, value, bound), bound, value)
        value = lo.em.cast("fptosi", value, vector_type("i32", width))  # to fewer bits LLVM converts lane by lane
        return lo.em.cast("trunc", value, kind)

    return emit


def _function(name: str, formula: Callable[[Emitter, Val], Val]) -> Row:
    """Computes float32 by a formula, float64 by the C library."""

    def emit(lo: Lowering, args: Sequence[Val], source: Type, result: Type, width: int, op: Operation | None) -> Val:
        return formula(lo.em, *args) if source == F32 else library_functions.by_element(lo, name, args)

    return emit


def _by_polynomial(name: str) -> Row:
    function = FUNCTIONS[name]
    return _function(name.removeprefix("math."), lambda em, x: function(VectorMath(em, x.type), x))


def _in_float64(name: str) -> Row:
    function = float32_functions.FUNCTIONS[name]
    return _function(name, lambda em, x: function(Number(em, x)).val)


def _remainder(lo: Lowering, args: Sequence[Val], source: Type, result: Type, width: int, op: Operation | None) -> Val:
    return lo.em.binary("frem", args[0], args[1])


def _negate(lo: Lowering, args: Sequence[Val], source: Type, result: Type, width: int, op: Operation | None) -> Val:
    return lo.em.op(args[0].type, f"fneg {args[0]}")


def _rsqrt(lo: Lowering, args: Sequence[Val], source: Type, result: Type, width: int, op: Operation | None) -> Val:
    root = lo.em.call(args[0].type, f"llvm.sqrt.{suffix(args[0].type)}", [args[0]])
    return lo.em.binary("fdiv", literal(1.0, args[0].type), root)


def _bitcast(lo: Lowering, args: Sequence[Val], source: Type, result: Type, width: int, op: Operation | None) -> Val:
    return lo.em.cast("bitcast", args[0], register_type(result, width))


def _high_product(lo: Lowering, args: Sequence[Val], source: Type, result: Type, width: int, op: Operation | None) -> Val:
    bits = bit_width(source)
    wide = vector_type(f"i{2 * bits}", width)
    product = lo.em.binary("mul", lo.em.cast("zext", args[0], wide), lo.em.cast("zext", args[1], wide))
    return lo.em.cast("trunc", lo.em.binary("lshr", product, literal(bits, wide)), args[0].type)


def _clamp(lo: Lowering, args: Sequence[Val], source: Type, result: Type, width: int, op: Operation | None) -> Val:
    x, low, high = args
    propagate = op is not None and attribute(op, "propagate_nan") == "all"
    least, most = ("minimum", "maximum") if propagate else ("minnum", "maxnum")
    raised = lo.em.call(x.type, f"llvm.{most}.{suffix(x.type)}", [x, low])
    return lo.em.call(x.type, f"llvm.{least}.{suffix(x.type)}", [raised, high])


def _dot_bytes(lo: Lowering, args: Sequence[Val], source: Type, result: Type, width: int, op: Operation | None) -> Val:
    assert op is not None
    acc, *factors = args
    a_signed, b_signed = (bool(attribute(op, name)) for name in ("a_signed", "b_signed"))
    most = attribute(op, "a_most")
    assert isinstance(most, int)
    pairs = list(zip(factors[::2], factors[1::2], strict=True))
    return byte_products.dot(lo.em, acc, pairs, a_signed, b_signed, most, lo.int8_pack)


_TABLE: dict[str, Row] = {
    **{f"arith.{name}i": _binary(name) for name in ("add", "sub", "mul", "and", "or", "xor")},
    **{f"arith.{name}f": _binary(f"f{name}", flags=True) for name in ("add", "sub", "mul")},
    "arith.divf": _binary("fdiv"),
    "tt.precise_divf": _binary("fdiv"),
    "arith.remf": _remainder,
    "arith.negf": _negate,
    **{f"arith.{n}": _divide(o) for n, o in (("divsi", "sdiv"), ("divui", "udiv"), ("remsi", "srem"), ("remui", "urem"))},
    **{f"arith.{n}": _shift(o) for n, o in (("shli", "shl"), ("shrsi", "ashr"), ("shrui", "lshr"))},
    **{f"arith.{n}": _intrinsic(i) for n, i in (("maxsi", "smax"), ("maxui", "umax"), ("minsi", "smin"), ("minui", "umin"))},
    **{f"arith.{n}": _intrinsic(n[:-1]) for n in ("maximumf", "maxnumf", "minimumf", "minnumf")},
    "arith.cmpi": _compare("icmp"),
    "arith.cmpf": _compare("fcmp"),
    "arith.select": _select,
    **{f"arith.{n}": _cast(o) for n, o in (("extsi", "sext"), ("extui", "zext"), ("trunci", "trunc"))},
    **{f"arith.{n}": _cast(n) for n in ("sitofp", "uitofp")},
    "arith.fptosi": _to_int(True),
    "arith.fptoui": _to_int(False),
    "arith.bitcast": _bitcast,
    "tt.bitcast": _bitcast,
    "tt.int_to_ptr": _cast("inttoptr"),
    "tt.ptr_to_int": _cast("ptrtoint"),
    "tt.clampf": _clamp,
    "tt.mulhiui": _high_product,
    "tt.precise_sqrt": _intrinsic("sqrt"),
    **{name: _by_polynomial(name) for name in FUNCTIONS},
    **{f"math.{name}": _in_float64(name) for name in ("sin", "cos")},
    **{f"math.{name}": _intrinsic(name) for name in ("sqrt", "floor", "ceil", "fma")},
    "math.absf": _intrinsic("fabs"),
    "math.absi": _intrinsic("abs", extra="i1 false"),
    "math.rsqrt": _rsqrt,
    "cpu.dot_bytes": _dot_bytes,
}

_BITWISE = {"arith.bitcast", "tt.bitcast", "arith.select"}


def is_elementwise(name: str) -> bool:
    """Whether an operation has a row here."""
    return name in _TABLE or name in ("arith.extf", "arith.truncf", "tt.fp_to_fp", "tt.extern_elementwise")
