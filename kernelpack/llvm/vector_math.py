"""Elementary functions on float32 vectors (and scalars), as polynomials that LLVM's code generator keeps in registers.

The coefficients are weighted least-maximum fits (Lawson's algorithm) of the functions named beside them; the comments give the
relative error of each fit. Other float types go through float32 or, for float64, through libm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kernelpack.llvm.text import Emitter, Val, literal, suffix, vector_type, vector_width

_EXP2 = (0.6931471824645996, 0.24022647738456726, 0.055503323674201965, 0.009618437848985195, 0.0013398926239460707, 0.00015353321214206517)  # (2^r - 1) / r, |r| <= 1/2: 2.0e-9  # fmt: skip
_EXP = (0.4999999403953552, 0.1666652113199234, 0.04166838899254799, 0.00836874544620514, 0.0013814540579915047)  # (e^r - 1 - r) / r^2, |r| <= ln2/2: 3.1e-9  # fmt: skip
_LOG = (0.3333331346511841, -0.25000008940696716, 0.2000211924314499, -0.1666799634695053, 0.14219552278518677, -0.1240558847784996, 0.11888163536787033, -0.11675657331943512, 0.06746644526720047)  # (log(1+f) - f + f^2/2) / f^3, 1+f in [1/sqrt2, sqrt2]: 7.5e-10  # fmt: skip
_TANH = (-0.3333328068256378, 0.13331441581249237, -0.05373971536755562, 0.0206390842795372, -0.005704984534531832)  # (tanh(x) - x) / x^3 in x^2, |x| < 0.625: 4.4e-9  # fmt: skip
_ERF = (0.12837916612625122, -0.37612634897232056, 0.11283693671226501, -0.026859225705266, 0.005200604442507029, -0.0008137855329550803, 8.34961247164756e-05)  # erf(x)/x - 1 in x^2, |x| < 0.925: 4.3e-10  # fmt: skip
_ERFC = (-0.00017333540017716587, 1.129508376121521, 0.6333600878715515, 0.10826557129621506, -0.025110023096203804, 0.004167485516518354, -0.0004337232676334679, 2.103102087858133e-05)  # -log(erfc(x)), 0.92 < x < 4: 4.9e-11 of erf  # fmt: skip

_LN2_HIGH = 0.693145751953125  # the upper 16 bits of ln 2, so that n * _LN2_HIGH is exact
_LN2_LOW = math.log(2.0) - _LN2_HIGH
_ROUNDER = (
    12582912.0 + 254.0
)  # 1.5 * 2^23: adding it to x leaves the nearest integer n in the low ten bits, here as n + 2 * 127


class VectorMath:
    """Emits functions of one float32 vector or scalar type."""

    def __init__(self, emitter: Emitter, kind: str) -> None:
        self.em = emitter
        self.kind = kind
        self.ints = vector_type("i32", vector_width(kind))
        self.scales_masked = kind == "<16 x float>" and "avx512" in emitter.features

    # ---- building blocks ----

    def const(self, value: float) -> Val:
        return literal(value, self.kind)

    def int_const(self, value: int) -> Val:
        return literal(value, self.ints)

    def fma(self, a: Val, b: Val, c: Val) -> Val:
        return self.em.call(self.kind, f"llvm.fma.{suffix(self.kind)}", [a, b, c])

    def add(self, a: Val, b: Val) -> Val:
        return self.em.binary("fadd", a, b)

    def sub(self, a: Val, b: Val) -> Val:
        return self.em.binary("fsub", a, b)

    def mul(self, a: Val, b: Val) -> Val:
        return self.em.binary("fmul", a, b)

    def bits(self, value: Val) -> Val:
        return self.em.cast("bitcast", value, self.ints)

    def from_bits(self, value: Val) -> Val:
        return self.em.cast("bitcast", value, self.kind)

    def less(self, a: Val, b: Val) -> Val:
        return self.em.compare("fcmp", "olt", a, b)

    def abs(self, value: Val) -> Val:
        return self.em.call(self.kind, f"llvm.fabs.{suffix(self.kind)}", [value])

    def copysign(self, magnitude: Val, sign: Val) -> Val:
        return self.em.call(self.kind, f"llvm.copysign.{suffix(self.kind)}", [magnitude, sign])

    def horner(self, coefficients: Sequence[float], x: Val) -> Val:
        """Returns c0 + c1 x + c2 x^2 + ..."""
        result = self.const(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            result = self.fma(result, x, self.const(coefficient))
        return result

    def at_most(self, x: Val, high: float) -> Val:
        """Limits x from above; NaN stays NaN because its comparison is false."""
        return self.em.select(self.less(self.const(high), x), self.const(high), x)

    def scale(self, mantissa: Val, exponent: Val, whole: Val, vanishes: Val) -> Val:
        """Returns mantissa * 2^n, n given as `_ROUNDER` + n in float (`exponent`) and as a float integer (`whole`).

        In two factors, so that results below the normal range round once and those above become infinite. Zero where
        `vanishes`: a product that underflows costs some CPUs over a hundred cycles, and masked elements (-inf) do so always.
        """
        if self.scales_masked:
            kept = self.em.binary("xor", vanishes, literal(-1, vanishes.type))
            lanes = self.em.cast("bitcast", kept, "i16")
            arguments = [mantissa, whole, literal(0.0, self.kind), lanes, Val("i32", "4")]
            return self.em.call(self.kind, "llvm.x86.avx512.mask.scalef.ps.512", arguments)
        biased = self.bits(exponent)
        half = self.em.binary("and", self.em.binary("shl", biased, self.int_const(22)), self.int_const(-1 << 23))
        rest = self.em.binary("sub", self.em.binary("shl", biased, self.int_const(23)), half)
        result = self.mul(self.mul(mantissa, self.from_bits(half)), self.from_bits(rest))
        return self.em.select(vanishes, self.const(0.0), result)

    def above(self, x: Val, least: float) -> tuple[Val, Val]:
        """Returns where x is below `least`, and x with something harmless there where `scale` computes those lanes too."""
        vanishes = self.less(x, self.const(least))
        return vanishes, x if self.scales_masked else self.em.select(vanishes, self.const(0.0), x)

    # ---- functions ----

    def exp2(self, x: Val) -> Val:
        """2^x: x = n + r, 2^r by polynomial. Below -150 the result is zero."""
        if self.scales_masked:
            # r by an instruction for it, which gives 0 for infinity
            nearest = [x, Val("i32", "8"), self.const(0.0), Val("i16", "-1"), Val("i32", "4")]
            r = self.em.call(self.kind, "llvm.x86.avx512.mask.reduce.ps.512", nearest)
            n = self.sub(x, r)
            return self._scaled(r, n, n, self.less(x, self.const(-150.0)))
        vanishes, x = self.above(self.at_most(x, 160.0), -150.0)
        shifted = self.add(x, self.const(_ROUNDER))
        n = self.sub(shifted, self.const(_ROUNDER))
        return self._scaled(self.sub(x, n), shifted, n, vanishes)

    def _scaled(self, r: Val, exponent: Val, whole: Val, vanishes: Val) -> Val:
        """Returns 2^r * 2^n, as `scale` has it, for |r| <= 1/2."""
        return self.scale(self.fma(self.horner(_EXP2, r), r, self.const(1.0)), exponent, whole, vanishes)

    def exp(self, x: Val) -> Val:
        """e^x: x = n ln2 + r with ln2 in two parts, e^r by polynomial. Below -104 the result is zero."""
        vanishes, x = self.above(self.at_most(x, 110.0), -104.0)
        shifted = self.fma(x, self.const(1 / math.log(2.0)), self.const(_ROUNDER))
        n = self.sub(shifted, self.const(_ROUNDER))
        r = self.fma(n, self.const(-_LN2_LOW), self.fma(n, self.const(-_LN2_HIGH), x))
        q = self.fma(self.horner(_EXP, r), r, self.const(1.0))  # e^r = 1 + r q: the rounding of q counts |r| times only
        return self.scale(self.fma(q, r, self.const(1.0)), shifted, n, vanishes)

    def _split(self, x: Val) -> tuple[Val, Val]:
        """Returns (e, f) with x = 2^e (1 + f), 1 + f in [1/sqrt2, sqrt2), for positive x; subnormals are scaled first."""
        tiny = self.less(x, self.const(1.1754943508222875e-38))
        x = self.em.select(tiny, self.mul(x, self.const(8388608.0)), x)
        bits = self.em.binary("sub", self.bits(x), self.int_const(0x3F3504F3))
        exponent = self.em.binary("ashr", bits, self.int_const(23))
        kept = self.em.binary("and", bits, self.int_const(0x007FFFFF))
        mantissa = self.from_bits(self.em.binary("add", kept, self.int_const(0x3F3504F3)))
        e = self.em.cast("sitofp", exponent, self.kind)
        e = self.em.select(tiny, self.sub(e, self.const(23.0)), e)
        return e, self.sub(mantissa, self.const(1.0))

    def _log_edges(self, x: Val, result: Val) -> Val:
        """Puts in what logarithms give outside (0, inf): -inf at 0, NaN below, inf at inf, NaN at NaN."""
        special = self.em.compare("fcmp", "ult", x, self.const(math.inf))
        result = self.em.select(special, result, x)
        zero = self.em.compare("fcmp", "oeq", x, self.const(0.0))
        result = self.em.select(zero, self.const(-math.inf), result)
        bad = self.em.compare("fcmp", "ult", x, self.const(0.0))
        return self.em.select(bad, self.const(math.nan), result)

    def log(self, x: Val) -> Val:
        e, f = self._split(x)
        square = self.mul(f, f)
        tail = self.mul(self.mul(square, f), self.horner(_LOG, f))
        tail = self.fma(e, self.const(_LN2_LOW), tail)
        tail = self.fma(square, self.const(-0.5), tail)
        return self._log_edges(x, self.fma(e, self.const(_LN2_HIGH), self.add(f, tail)))

    def log2(self, x: Val) -> Val:
        e, f = self._split(x)
        cubic = self.mul(self.mul(self.mul(f, f), f), self.horner(_LOG, f))
        tail = self.fma(self.mul(f, self.const(-0.5)), f, cubic)  # of f * f itself, not of what it is rounded to: 0.2 ulp less
        high, low = 1.4426950216293335, 1.925963033500692e-08  # 1/ln2 in two floats
        fraction = self.fma(tail, self.const(high), self.mul(self.add(f, tail), self.const(low)))
        fraction = self.fma(f, self.const(high), fraction)
        return self._log_edges(x, self.add(e, fraction))

    def log1p(self, x: Val) -> Val:
        """log(1 + x): the rounding error of 1 + x is put back as error / (1 + x)."""
        u = self.add(x, self.const(1.0))
        error = self.sub(x, self.sub(u, self.const(1.0)))
        result = self.add(self.log(u), self.em.binary("fdiv", error, u))
        tiny = self.less(self.abs(x), self.const(2.0**-24))
        result = self.em.select(tiny, x, result)
        infinite = self.em.compare("fcmp", "oeq", x, self.const(math.inf))
        return self.em.select(infinite, x, self._edge_minus_one(x, result))

    def _edge_minus_one(self, x: Val, result: Val) -> Val:
        edge = self.em.compare("fcmp", "oeq", x, self.const(-1.0))
        return self.em.select(edge, self.const(-math.inf), result)

    def tanh(self, x: Val) -> Val:
        """Odd polynomial near zero, 1 - 2 / (e^2|x| + 1) elsewhere."""
        a = self.abs(x)
        square = self.mul(x, x)
        near = self.fma(self.mul(square, self.horner(_TANH, square)), a, a)
        grown = self.add(self.exp(self.add(a, a)), self.const(1.0))
        far = self.sub(self.const(1.0), self.em.binary("fdiv", self.const(2.0), grown))
        small = self.less(a, self.const(0.625))
        return self.copysign(self.em.select(small, near, far), x)

    def erf(self, x: Val) -> Val:
        """Odd polynomial near zero, 1 - e^-P(|x|) elsewhere."""
        a = self.abs(x)
        square = self.mul(x, x)
        near = self.fma(self.horner(_ERF, square), a, a)
        bounded = self.em.select(self.less(self.const(4.0), a), self.const(4.0), a)
        exponent = self.em.op(self.kind, f"fneg {self.horner(_ERFC, bounded)}")
        far = self.sub(self.const(1.0), self.exp(exponent))
        small = self.less(a, self.const(0.925))
        return self.copysign(self.em.select(small, near, far), x)


FUNCTIONS: dict[str, Callable[[VectorMath, Val], Val]] = {
    "math.exp": VectorMath.exp,
    "math.exp2": VectorMath.exp2,
    "math.log": VectorMath.log,
    "math.log2": VectorMath.log2,
    "math.log1p": VectorMath.log1p,
    "math.tanh": VectorMath.tanh,
    "math.erf": VectorMath.erf,
}
