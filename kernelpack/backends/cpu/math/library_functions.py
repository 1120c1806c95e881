"""What the functions of libdevice become on a CPU: operations, LLVM's intrinsics, formulas, or calls of the C library."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from kernelpack.backends.cpu.math import float32_functions, special_functions
from kernelpack.backends.cpu.math.directed_rounding import directed, moved
from kernelpack.backends.cpu.math.formula import Number
from kernelpack.ir.libdevice import CONVERSIONS, SYMBOLS, Variant
from kernelpack.ir.types import F32, F64, I32, I64, Type
from kernelpack.llvm.text import Emitter, Val, element_type, literal, suffix, vector_type, vector_width


class Elementwise(Protocol):
    """What writes elementwise operations of one kernel."""

    em: Emitter

    def apply(self, name: str, arguments: Sequence[Val], source: Type, result: Type, width: int) -> Val:
        """Returns the result of an operation by name, from elements of type `source` to `result`."""
        ...


TYPES: dict[str, Type] = {"fp32": F32, "fp64": F64, "i32": I32, "u32": I32, "i64": I64, "u64": I64}

# functions that are operations already
_ROWS = {
    **{name: f"math.{name}" for name in (
        "ceil", "cos", "erf", "exp", "exp2", "floor", "log", "log1p", "log2", "rsqrt", "sin", "sqrt", "tanh", "fma",
    )},
    **{f"fast_{name}f": f"math.{name}" for name in ("sin", "cos", "exp", "log", "log2", "tanh")},
    "fast_dividef": "arith.divf", "add_rn": "arith.addf", "sub_rn": "arith.subf", "mul_rn": "arith.mulf",
    "div_rn": "arith.divf", "fma_rn": "math.fma", "sqrt_rn": "math.sqrt", "rsqrt_rn": "math.rsqrt",
}  # fmt: skip
_INTRINSICS = {
    "trunc": "trunc", "rint": "rint", "nearbyint": "nearbyint", "round": "round", "copysign": "copysign", "brev": "bitreverse",
}  # fmt: skip
# the C library's name, where it is another one
_C_LIBRARY = {
    **{name: name for name in ["acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cosh", "erfc", "exp10", "expm1", "fdim", "fmod", "hypot", "j0", "j1", "lgamma", "log10", "logb", "nextafter", "pow", "remainder", "sinh", "tan", "tgamma", "y0", "y1"]},
    "fast_tanf": "tan", "fast_exp10f": "exp10", "fast_log10f": "log10", "fast_powf": "pow",
}  # fmt: skip
_WHOLE = {"rn": "rint", "rd": "floor", "ru": "ceil", "rz": "trunc", "llrint": "rint", "llround": "round"}


def refusal(symbol: str) -> str | None:
    """Returns why a CPU has no such function, or None."""
    return None if symbol in SYMBOLS else f"CPUs have no function {symbol}"


def operation_for(symbol: str) -> str | None:
    """Returns the operation that computes a function, or None where it takes more than one."""
    return _ROWS.get(SYMBOLS[symbol].name)


def is_formula(symbol: str) -> bool:
    """Whether a function is a formula of float64 here: a hundred instructions or so."""
    return _formula(SYMBOLS[symbol]) is not None


def calls_library(symbol: str) -> bool:
    """Whether a function calls the C library for every element."""
    variant = SYMBOLS[symbol]
    return _formula(variant) is None and (variant.name in _C_LIBRARY or variant.name in _CALLING)


def _formula(variant: Variant) -> Callable[..., Number] | None:
    name = variant.name
    return float32_functions.FUNCTIONS.get(_C_LIBRARY.get(name, name)) if variant.result == "fp32" else None


def lower(lo: Elementwise, symbol: str, args: Sequence[Val]) -> Val:
    """Returns the result of a function on vectors or scalars of one width."""
    variant = SYMBOLS[symbol]
    return _row(variant)(lo, variant, args)


Row = Callable[[Elementwise, Variant, Sequence[Val]], Val]


def _row(variant: Variant) -> Row:
    name = variant.name
    formula = _formula(variant)
    if formula is not None:
        return lambda lo, v, args: formula(*(Number(lo.em, value) for value in args)).val
    special = _SPECIAL.get(name) or _CALLING.get(name)
    if special is not None:
        return special
    if name in _ROWS:
        return lambda lo, v, args: _operation(lo, _ROWS[name], args, TYPES[v.result])
    if name in _INTRINSICS:
        return lambda lo, v, args: _intrinsic(lo, _INTRINSICS[name], *args)
    if name in _C_LIBRARY:
        return lambda lo, v, args: by_element(lo, _C_LIBRARY[name], args)
    operation, _, mode = name.rpartition("_")
    return lambda lo, v, args: directed(lo.em, operation, mode, args)


def _operation(lo: Elementwise, name: str, args: Sequence[Val], kind: Type) -> Val:
    return lo.apply(name, args, kind, kind, vector_width(args[0].type))


def _intrinsic(lo: Elementwise, name: str, *args: Val) -> Val:
    return lo.em.call(args[0].type, f"llvm.{name}.{suffix(args[0].type)}", args)


def by_element(lo: Elementwise, name: str, args: Sequence[Val], result: str | None = None) -> Val:
    """Calls the C library for every element; float32 has functions of its own, whose names end in f."""
    em, width = lo.em, vector_width(args[0].type)
    floats = next(element_type(value.type) for value in args if element_type(value.type) in ("float", "double"))
    function, kind = name + ("f" if floats == "float" else ""), result or floats
    if width == 1:
        return em.call(kind, function, args)
    out = Val(vector_type(kind, width), "poison")
    for lane in range(width):
        one = em.call(kind, function, [em.extract(value, lane) for value in args])
        out = em.op(out.type, f"insertelement {out}, {one}, i64 {lane}")
    return out


def _kind(like: Val, element: str) -> str:
    return vector_type(element, vector_width(like.type))


def _number(like: Val, value: float) -> Val:
    return literal(value, like.type)


def _truth(lo: Elementwise, holds: Val) -> Val:
    return lo.em.cast("zext", holds, _kind(holds, "i32"))


def _bits(lo: Elementwise, value: Val) -> Val:
    width = 32 if element_type(value.type) == "float" else 64
    return lo.em.cast("bitcast", value, _kind(value, f"i{width}"))


def _compared(predicate: str, against: float | None) -> Row:
    """Compares magnitudes with a number, or a value with itself."""

    def row(lo: Elementwise, variant: Variant, args: Sequence[Val]) -> Val:
        (x,) = args
        if against is None:
            return _truth(lo, lo.em.compare("fcmp", predicate, x, x))
        return _truth(lo, lo.em.compare("fcmp", predicate, _intrinsic(lo, "fabs", x), _number(x, against)))

    return row


def _signbit(lo: Elementwise, variant: Variant, args: Sequence[Val]) -> Val:
    bits = _bits(lo, args[0])
    return _truth(lo, lo.em.compare("icmp", "slt", bits, literal(0, bits.type)))


def _absolute(lo: Elementwise, variant: Variant, args: Sequence[Val]) -> Val:
    if variant.result.startswith("fp"):
        return _intrinsic(lo, "fabs", *args)
    return lo.em.call(args[0].type, f"llvm.abs.{suffix(args[0].type)}", [args[0], Val("i1", "false")])


def _counted(name: str) -> Row:
    """Counts zeros or ones; the count is an int32."""

    def row(lo: Elementwise, variant: Variant, args: Sequence[Val]) -> Val:
        em, (x,) = lo.em, args
        more = [] if name == "ctpop" else [Val("i1", "false")]
        count = em.call(x.type, f"llvm.{name}.{suffix(x.type)}", [x, *more])
        if variant.name == "ffs":
            zero = em.compare("icmp", "eq", x, literal(0, x.type))
            count = em.select(zero, literal(0, x.type), em.binary("add", count, literal(1, x.type)))
        return em.cast("trunc", count, _kind(x, "i32")) if element_type(x.type) == "i64" else count

    return row


def _high(lo: Elementwise, variant: Variant, args: Sequence[Val]) -> Val:
    em, (x, y) = lo.em, args
    width = int(element_type(x.type)[1:])
    wide, extend = _kind(x, f"i{2 * width}"), "zext" if variant.arguments[0].startswith("u") else "sext"
    product = em.binary("mul", em.cast(extend, x, wide), em.cast(extend, y, wide))
    return em.cast("trunc", em.binary("lshr", product, literal(width, wide)), x.type)


def _low24(lo: Elementwise, variant: Variant, args: Sequence[Val]) -> Val:
    em, shift = lo.em, "lshr" if variant.arguments[0].startswith("u") else "ashr"
    x, y = (em.binary(shift, em.binary("shl", v, literal(8, v.type)), literal(8, v.type)) for v in args)
    return em.binary("mul", x, y)


def _average(up: int) -> Row:
    def row(lo: Elementwise, variant: Variant, args: Sequence[Val]) -> Val:
        em, (x, y) = lo.em, args
        wide, extend = _kind(x, "i64"), "zext" if variant.arguments[0].startswith("u") else "sext"
        total = em.binary("add", em.cast(extend, x, wide), em.cast(extend, y, wide))
        return em.cast("trunc", em.binary("ashr", em.binary("add", total, literal(up, wide)), literal(1, wide)), x.type)

    return row


def _distance(lo: Elementwise, variant: Variant, args: Sequence[Val]) -> Val:
    em, (x, y, z) = lo.em, args
    less = em.compare("icmp", "ult" if variant.arguments[0].startswith("u") else "slt", x, y)
    return em.binary("add", em.select(less, em.binary("sub", y, x), em.binary("sub", x, y)), z)


def _select_bytes(lo: Elementwise, variant: Variant, args: Sequence[Val]) -> Val:
    em, (x, y, s) = lo.em, args
    wide = _kind(x, "i64")
    high = em.binary("shl", em.cast("zext", y, wide), literal(32, wide))
    both, picks = em.binary("or", high, em.cast("zext", x, wide)), em.cast("zext", s, wide)
    result = literal(0, wide)
    for at in range(4):
        pick = em.binary("and", em.binary("lshr", picks, literal(4 * at, wide)), literal(7, wide))
        byte = em.binary("lshr", both, em.binary("shl", pick, literal(3, wide)))
        byte = em.binary("shl", em.binary("and", byte, literal(255, wide)), literal(8 * at, wide))
        result = em.binary("or", byte, result)
    return em.cast("trunc", result, x.type)


def _to_integer(lo: Elementwise, variant: Variant, args: Sequence[Val]) -> Val:
    """Rounds and saturates. NaN gives 0 from float32 to 32 bits, otherwise the highest bit alone (PTX ISA, cvt)."""
    em, x = lo.em, _intrinsic(lo, _WHOLE[variant.name.rpartition("_")[2]], args[0])
    kind, sign = _kind(x, variant.result), "ui" if "2u" in variant.name else "si"
    whole = em.call(kind, f"llvm.fpto{sign}.sat.{suffix(kind)}.{suffix(x.type)}", [x])
    if (variant.arguments[0], variant.result) == ("fp32", "i32"):
        return whole
    highest = literal(-(1 << int(variant.result[1:]) - 1), kind)
    return em.select(em.compare("fcmp", "uno", x, x), highest, whole)


def _to_float(lo: Elementwise, variant: Variant, args: Sequence[Val]) -> Val:
    """Converts float64 or integers to nearest, then moves the result where the mode asks for it."""
    em, (x,), argument = lo.em, args, variant.arguments[0]
    kind = _kind(x, "float" if variant.result == "fp32" else "double")
    near = em.cast("fptrunc" if argument == "fp64" else "uitofp" if argument.startswith("u") else "sitofp", x, kind)
    mode = variant.name[-2:]
    if mode == "rn":
        return near
    high, low = (x, literal(0.0, x.type)) if argument == "fp64" else _parts(em, x, argument.startswith("u"))
    result = Number(em, near)
    return moved(em, result, (Number(em, high) - result.converted("double")) + Number(em, low), mode)


def _parts(em: Emitter, x: Val, unsigned: bool) -> tuple[Val, Val]:
    """Returns two float64 values whose exact sum is an integer: its upper 32 bits of 64, and the lower ones."""
    wide, real = _kind(x, "i64"), _kind(x, "double")
    if x.type != wide:
        x = em.cast("zext" if unsigned else "sext", x, wide)
    low = em.binary("and", x, literal(0xFFFFFFFF, wide))
    return em.cast("uitofp" if unsigned else "sitofp", em.binary("sub", x, low), real), em.cast("uitofp", low, real)


def _rough_reciprocal(lo: Elementwise, variant: Variant, args: Sequence[Val]) -> Val:
    """Reads and gives the upper 32 bits alone, and takes subnormal numbers to zero (PTX ISA, rcp.approx.ftz.f64)."""
    em = lo.em

    def upper(value: Val) -> Val:
        bits = _bits(lo, value)
        cut = em.cast("bitcast", em.binary("and", bits, literal(-(1 << 32), bits.type)), value.type)
        tiny = em.compare("fcmp", "olt", _intrinsic(lo, "fabs", cut), _number(cut, 2.0**-1022))
        return em.select(tiny, _intrinsic(lo, "copysign", _number(cut, 0.0), cut), cut)

    return upper(_reciprocal(lo, upper(args[0])))


def _cast_bits(lo: Elementwise, variant: Variant, args: Sequence[Val]) -> Val:
    kinds = {"fp32": "float", "fp64": "double"}
    return lo.em.cast("bitcast", args[0], _kind(args[0], kinds.get(variant.result, variant.result.replace("u", "i"))))


def _halves(lo: Elementwise, variant: Variant, args: Sequence[Val]) -> Val:
    em: Emitter = lo.em
    if variant.name == "hiloint2double":
        wide = _kind(args[0], "i64")
        high = em.binary("shl", em.cast("zext", args[0], wide), literal(32, wide))
        return em.cast("bitcast", em.binary("or", high, em.cast("zext", args[1], wide)), _kind(args[0], "double"))
    bits = _bits(lo, args[0])
    half = em.binary("lshr", bits, literal(32, bits.type)) if variant.name == "double2hiint" else bits
    return em.cast("trunc", half, _kind(half, "i32"))


def _integer_argument(lo: Elementwise, variant: Variant, args: Sequence[Val]) -> Val:
    return by_element(lo, variant.name, args)


def _exponent(lo: Elementwise, variant: Variant, args: Sequence[Val]) -> Val:
    return by_element(lo, "ilogb", args, "i32")


def _reciprocal(lo: Elementwise, value: Val) -> Val:
    return lo.em.binary("fdiv", _number(value, 1.0), value)


def _norm(count: int, inverse: bool) -> Row:
    def row(lo: Elementwise, variant: Variant, args: Sequence[Val]) -> Val:
        total = by_element(lo, "hypot", args[:2])
        for value in args[2:count]:
            total = by_element(lo, "hypot", [total, value])
        return _reciprocal(lo, total) if inverse else total

    return row


def _saturate(lo: Elementwise, variant: Variant, args: Sequence[Val]) -> Val:
    """Limits to [0, 1]; NaN gives 0."""
    (x,) = args
    return _intrinsic(lo, "minnum", _intrinsic(lo, "maxnum", x, _number(x, 0.0)), _number(x, 1.0))


def _of_pi(name: str) -> Row:
    """sin(pi x), cos(pi x): the argument is reduced before it is multiplied."""

    def row(lo: Elementwise, variant: Variant, args: Sequence[Val]) -> Val:
        em, (x,) = lo.em, args
        whole = em.binary("fmul", _intrinsic(lo, "rint", em.binary("fmul", x, _number(x, 0.5))), _number(x, 2.0))
        return by_element(lo, name, [em.binary("fmul", em.binary("fsub", x, whole), _number(x, math.pi))])

    return row


def _normal(lo: Elementwise, variant: Variant, args: Sequence[Val]) -> Val:
    """The distribution function of the standard normal distribution, in float64."""
    em, (x,) = lo.em, args
    wide = em.cast("fpext", x, _kind(x, "double"))
    tail = by_element(lo, "erfc", [em.binary("fmul", wide, _number(wide, -math.sqrt(0.5)))])
    return em.cast("fptrunc", em.binary("fmul", tail, _number(tail, 0.5)), x.type)


def _in_double(function: Callable[[special_functions.Library, Number], Number]) -> Row:
    """Computes a formula in float64."""

    def row(lo: Elementwise, variant: Variant, args: Sequence[Val]) -> Val:
        x = Number(lo.em, args[0])
        result = function(lambda name, value: Number(lo.em, by_element(lo, name, [value.val])), x.converted("double"))
        return result.converted(element_type(args[0].type)).val

    return row


_SPECIAL: dict[str, Row] = {
    "abs": _absolute,
    "isnan": _compared("uno", None),
    "isinf": _compared("oeq", math.inf),
    "finitef": _compared("olt", math.inf),
    "isfinited": _compared("olt", math.inf),
    "signbit": _signbit,
    "clz": _counted("ctlz"),
    "popc": _counted("ctpop"),
    "ffs": _counted("cttz"),
    "mulhi": _high,
    "mul24": _low24,
    "hadd": _average(0),
    "rhadd": _average(1),
    "sad": _distance,
    "byte_perm": _select_bytes,
    **dict.fromkeys(("llrint", "llround"), _to_integer),
    **{name: _to_integer if result.startswith("i") else _to_float for name, (_, result) in CONVERSIONS.items()},
    "rcp64h": _rough_reciprocal,
    **dict.fromkeys(("hiloint2double", "double2loint", "double2hiint"), _halves),
    **dict.fromkeys(("int_as_float", "uint_as_float", "float_as_int", "float_as_uint"), _cast_bits),
    **dict.fromkeys(("longlong_as_double", "double_as_longlong"), _cast_bits),
    "rcp_rn": lambda lo, v, args: _reciprocal(lo, args[0]),
    "saturatef": _saturate,
}
"""Those of a few instructions."""

_CALLING: dict[str, Row] = {
    "ilogb": _exponent,
    **dict.fromkeys(("jn", "yn", "ldexp", "scalbn"), _integer_argument),
    "rcbrt": lambda lo, v, args: _reciprocal(lo, by_element(lo, "cbrt", args)),
    "rhypot": _norm(2, True),
    "norm3d": _norm(3, False),
    "rnorm3d": _norm(3, True),
    "norm4d": _norm(4, False),
    "rnorm4d": _norm(4, True),
    "sinpi": _of_pi("sin"),
    "cospi": _of_pi("cos"),
    "normcdf": _normal,
    **{name: _in_double(getattr(special_functions, name)) for name in ("erfinv", "erfcinv", "erfcx", "normcdfinv")},
    "cyl_bessel_i0": _in_double(special_functions.bessel(0)),
    "cyl_bessel_i1": _in_double(special_functions.bessel(1)),
}
"""Those that call the C library and do more."""
