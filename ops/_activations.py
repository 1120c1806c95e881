"""Activations of one element in float32: silu, gelu."""

import enum

import kernelpack as kp
import kernelpack.language as tl


class Approximate(enum.IntEnum):
    """How gelu is computed."""

    NONE = 0
    TANH = 1


def check_approximate(approximate):
    """A host function's check that a number is one of Approximate."""
    kp.check(
        approximate == Approximate.NONE or approximate == Approximate.TANH,
        f"approximate is {approximate}, expected 0 (none: by erf) or 1 (tanh)",
    )


@kp.jit
def silu(x):
    return x / (1.0 + tl.exp(-x))


@kp.jit
def upper_tail(a):
    """1 - Phi(a) for a from 0 to 5.3, Phi being the normal distribution's cumulative function; nothing of a times it is left beyond.

    It is a polynomial of least maximum error in t = a / 2.65 - 1: 4e-8, a few units in the last place near zero. It takes
    two thirds of the instructions of an erf, whose error is relative to itself. Even and odd powers are summed apart: one chain of
    16 would leave a CPU waiting for itself.
    """
    t = tl.fma(a, 0.37735849618911743, -1.0)
    u = t * t
    even = tl.fma(u, 0.006068756803870201, -0.039755936712026596)
    odd = tl.fma(u, -0.004374730866402388, 0.02001948654651642)
    even = tl.fma(even, u, 0.10631731897592545)
    odd = tl.fma(odd, u, -0.022236960008740425)
    even = tl.fma(even, u, -0.10865173488855362)
    odd = tl.fma(odd, u, -0.05946394056081772)
    even = tl.fma(even, u, -0.08977851271629333)
    odd = tl.fma(odd, u, 0.20250338315963745)
    even = tl.fma(even, u, 0.26093536615371704)
    odd = tl.fma(odd, u, -0.1323869526386261)
    even = tl.fma(even, u, 0.11084017902612686)
    odd = tl.fma(odd, u, -0.22249242663383484)
    even = tl.fma(even, u, 0.004024597816169262)
    odd = tl.fma(odd, u, -0.031567856669425964)
    return tl.fma(odd, t, even)


@kp.jit
def short_upper_tail(a):
    """The same for a up to 8 and results of 16 bits, in two thirds of the instructions: the 16th power of a polynomial, up to 6 within 5e-5
    of itself (rounding to float16 is 5e-4). What is left at 8 is 8e-16."""
    root = tl.fma(a, 1.6378857026211335e-07, -1.5616244581906358e-06)
    root = tl.fma(root, a, -4.3442218156997114e-05)
    root = tl.fma(root, a, 0.0007100589573383331)
    root = tl.fma(root, a, -0.0014611574588343501)
    root = tl.fma(root, a, -0.017693884670734406)
    root = tl.fma(root, a, -0.04780440777540207)
    root = tl.fma(root, a, 0.9576058983802795)
    fourth = (root * root) * (root * root)
    return (fourth * fourth) * (fourth * fourth)


@kp.jit
def gelu_of(x, TANH: tl.constexpr, SHORT: tl.constexpr):
    """x Phi(x), or with tanh x / (1 + exp(-2u)), which is 0.5 x (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3). SHORT: the result is
    rounded to 16 bits. -inf gives NaN, as in torch.

    x Phi(x) is the positive part of x, less |x| (1 - Phi(|x|)). The positive part is x less its negative part: of -inf that is NaN.
    """
    if TANH:
        return x / (1.0 + tl.exp(x * tl.fma(x * x, -0.07135481282553, -1.5957691216057308)))
    positive = x - tl.where(x < 0.0, x, 0.0)
    a = tl.abs(x)
    if SHORT:
        a = tl.where(a > 8.0, 8.0, a)
        return tl.fma(-a, short_upper_tail(a), positive)
    return tl.where(a > 5.3, positive, tl.fma(-a, upper_tail(a), positive))
