"""The functions of NVIDIA's libdevice by name: for which types there is which symbol. Backends that have no libdevice know what they mean."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """A function for one combination of types; types are named as in signatures: i32, u32, fp32 ..."""

    name: str
    symbol: str
    arguments: tuple[str, ...]
    result: str


# of floats, giving floats of the same type: symbols end in f for float32
_OF_ONE = (
    "acos acosh asin asinh atan atanh cbrt ceil cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 erf erfc erfcinv erfcx erfinv exp "
    "exp10 exp2 expm1 floor j0 j1 lgamma log log10 log1p log2 logb nearbyint normcdf normcdfinv rcbrt rint round rsqrt sin sinh "
    "sinpi sqrt tan tanh tgamma trunc y0 y1"
)
_OF_TWO = "atan2 copysign fdim fmod hypot nextafter pow remainder rhypot"
_OF_MORE = {"fma": 3, "norm3d": 3, "rnorm3d": 3, "norm4d": 4, "rnorm4d": 4}

# name: arguments->result symbol, ...
_OTHERS = """
abs: i32->i32 abs, i64->i64 llabs, fp32->fp32 fabsf, fp64->fp64 fabs
brev: i32->i32 brev, i64->i64 brevll
byte_perm: i32 i32 i32->i32 byte_perm
clz: i32->i32 clz, i64->i32 clzll
ffs: i32->i32 ffs, i64->i32 ffsll
popc: i32->i32 popc, i64->i32 popcll
mul24: i32 i32->i32 mul24, u32 u32->u32 umul24
mulhi: i32 i32->i32 mulhi, u32 u32->u32 umulhi, i64 i64->i64 mul64hi, u64 u64->u64 umul64hi
sad: i32 i32 u32->i32 sad, u32 u32 u32->u32 usad
hadd: i32 i32->i32 hadd, u32 u32->u32 uhadd
rhadd: i32 i32->i32 rhadd, u32 u32->u32 urhadd
finitef: fp32->i32 finitef
isfinited: fp64->i32 isfinited
isinf: fp32->i32 isinff, fp64->i32 isinfd
isnan: fp32->i32 isnanf, fp64->i32 isnand
signbit: fp32->i32 signbitf, fp64->i32 signbitd
ilogb: fp32->i32 ilogbf, fp64->i32 ilogb
jn: i32 fp32->fp32 jnf, i32 fp64->fp64 jn
yn: i32 fp32->fp32 ynf, i32 fp64->fp64 yn
ldexp: fp32 i32->fp32 ldexpf, fp64 i32->fp64 ldexp
scalbn: fp32 i32->fp32 scalbnf, fp64 i32->fp64 scalbn
llrint: fp32->i64 llrintf, fp64->i64 llrint
llround: fp32->i64 llroundf, fp64->i64 llround
add_rn: fp32 fp32->fp32 fadd_rn, fp64 fp64->fp64 dadd_rn
sub_rn: fp32 fp32->fp32 fsub_rn, fp64 fp64->fp64 dsub_rn
mul_rn: fp32 fp32->fp32 fmul_rn, fp64 fp64->fp64 dmul_rn
div_rn: fp32 fp32->fp32 fdiv_rn, fp64 fp64->fp64 ddiv_rn
fma_rn: fp32 fp32 fp32->fp32 fmaf_rn, fp64 fp64 fp64->fp64 fma_rn
rcp_rn: fp32->fp32 frcp_rn, fp64->fp64 drcp_rn
rsqrt_rn: fp32->fp32 frsqrt_rn
sqrt_rn: fp32->fp32 fsqrt_rn, fp64->fp64 dsqrt_rn
saturatef: fp32->fp32 saturatef
fast_dividef: fp32 fp32->fp32 fast_fdividef
fast_sinf: fp32->fp32 fast_sinf
fast_cosf: fp32->fp32 fast_cosf
fast_tanf: fp32->fp32 fast_tanf
fast_expf: fp32->fp32 fast_expf
fast_exp10f: fp32->fp32 fast_exp10f
fast_logf: fp32->fp32 fast_logf
fast_log2f: fp32->fp32 fast_log2f
fast_log10f: fp32->fp32 fast_log10f
fast_powf: fp32 fp32->fp32 fast_powf
fast_tanhf: fp32->fp32 fast_tanhf
rcp64h: fp64->fp64 rcp64h
hiloint2double: i32 i32->fp64 hiloint2double
double2loint: fp64->i32 double2loint
double2hiint: fp64->i32 double2hiint
int_as_float: i32->fp32 int_as_float
uint_as_float: u32->fp32 uint_as_float
float_as_int: fp32->i32 float_as_int
float_as_uint: fp32->u32 float_as_uint
longlong_as_double: i64->fp64 longlong_as_double
double_as_longlong: fp64->i64 double_as_longlong
"""

_ROUNDINGS = ("rz", "rd", "ru")
_FLOATS = {"float": "fp32", "double": "fp64"}
_INTEGERS = {"int": "i32", "uint": "u32", "ll": "i64", "ull": "u64"}
_ROUNDED = ("add", "sub", "mul", "div", "fma", "rcp", "sqrt")
PREFIX = "__nv_"
BOOLEAN = ("finitef", "isfinited", "isinf", "isnan", "signbit")
"""Functions whose result is a truth value."""


def _variants() -> dict[str, list[Variant]]:
    table: dict[str, list[Variant]] = {}

    def add(name: str, symbol: str, arguments: tuple[str, ...], result: str) -> None:
        table.setdefault(name, []).append(Variant(name, PREFIX + symbol, arguments, result))

    counts = dict.fromkeys(_OF_ONE.split(), 1) | dict.fromkeys(_OF_TWO.split(), 2) | _OF_MORE
    for name, count in counts.items():
        for kind, end in (("fp32", "f"), ("fp64", "")):
            add(name, name + end, (kind,) * count, kind)
    for line in _OTHERS.strip().split("\n"):
        name, _, rest = line.partition(": ")
        for part in rest.split(", "):
            signature, symbol = part.rsplit(" ", 1)
            arguments, result = signature.split("->")
            add(name, symbol, tuple(arguments.split()), result)
    for name in _ROUNDED:
        for nearest in list(table[name + "_rn"]):
            for rounding in _ROUNDINGS:
                symbol = nearest.symbol.removeprefix(PREFIX).replace("_rn", f"_{rounding}")
                add(f"{name}_{rounding}", symbol, nearest.arguments, nearest.result)
    for name, (argument, result) in CONVERSIONS.items():
        add(name, name, (argument,), result)
    return table


def _conversions() -> dict[str, tuple[str, str]]:
    pairs = [("double", "float")]
    for floating in _FLOATS:
        pairs += [pair for integer in _INTEGERS for pair in ((floating, integer), (integer, floating))]
    kinds = _FLOATS | _INTEGERS
    made = {}
    for source, result in pairs:
        exact = kinds[source] in ("i32", "u32") and result == "double"
        for mode in ("rn", *(() if exact else _ROUNDINGS)):
            made[f"{source}2{result}_{mode}"] = kinds[source], kinds[result].replace("u", "i")
    return made


CONVERSIONS = _conversions()
"""The types of the argument and the result of each conversion, whose name ends in how it rounds. Unsigned results are held as signed."""
FUNCTIONS = _variants()
"""The variants of each function, by its name."""
SYMBOLS = {variant.symbol: variant for variants in FUNCTIONS.values() for variant in variants}
"""Every variant by its symbol."""


LIBDEVICE_PREFIX = "__nv_"
"""Functions so called are linked from libdevice before optimisation."""
