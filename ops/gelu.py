"""gelu of every element, exact or by tanh, with the meaning of torch.nn.functional.gelu."""

import enum

import kernelpack as kp
import kernelpack.language as tl

from ._rows import DTYPES, ROW_RANGES, RowStrides, check_rows, grid_of, own_rows, row_offset, rows_of

RANGES = ROW_RANGES


class Approximate(enum.IntEnum):
    """How gelu is computed."""

    NONE = 0
    TANH = 1


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


@kp.jit
def gelu_chunk(x, out, first, end, n, TANH: tl.constexpr, BLOCK: tl.constexpr, READ: tl.constexpr, WRITE: tl.constexpr):
    for begin in range(first, end, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        inside = offsets < n
        value = tl.load(x + offsets, mask=inside, eviction_policy=READ).to(tl.float32)
        tl.store(out + offsets, gelu_of(value, TANH, x.dtype.element_ty != tl.float32), mask=inside, cache_modifier=WRITE)


@kp.jit
def gelu_flat(x, out, n: tl.int64, TANH: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr, LARGE: tl.constexpr):
    """LARGE: how many elements a last-level cache does not hold; from there on results are written past caches. 0: that is left to the GPU."""
    first = tl.program_id(0).to(tl.int64) * CHUNK
    end = tl.minimum(first + CHUNK, n)
    if LARGE == 0:
        gelu_chunk(x, out, first, end, n, TANH, BLOCK, "", "")
    elif n < LARGE:
        gelu_chunk(x, out, first, end, n, TANH, BLOCK, "evict_first", "")
    else:
        gelu_chunk(x, out, first, end, n, TANH, BLOCK, "evict_first", ".cs")


@kp.jit
def gelu_rows(x, out, strides, rows, TANH: tl.constexpr, BLOCK: tl.constexpr):
    first, stop = own_rows(rows)
    for row in range(first, stop):
        source = x + row_offset(row, rows, strides)
        for begin in range(0, rows.columns, BLOCK):
            offsets = begin + tl.arange(0, BLOCK)
            inside = offsets < rows.columns
            value = tl.load(source + offsets, mask=inside).to(tl.float32)
            tl.store(out + row * rows.columns + offsets, gelu_of(value, TANH, x.dtype.element_ty != tl.float32), mask=inside)


def config(point):
    """Flat programs take a chunk: on a CPU block after block, so that little is computed in vain at the end."""
    if point.target.backend == "cpu":
        return kp.Config({"CHUNK": 2048, "BLOCK": 256, "LARGE": 2**23})
    return kp.Config({"CHUNK": 1024, "BLOCK": 1024, "LARGE": 0}, num_warps=4)


@kp.op("gelu(Tensor x, *, int approximate=0) -> Tensor", variants={"x": DTYPES, "TANH": [False, True]}, configs={"": config})
def gelu(x, approximate):
    """Returns gelu of x in its shape and dtype; `approximate` is an `Approximate`."""
    kp.check(
        approximate == Approximate.NONE or approximate == Approximate.TANH,
        f"approximate is {approximate}, expected 0 (none: by erf) or 1 (tanh)",
    )
    out = kp.empty_like(x)
    tanh = approximate == Approximate.TANH
    if x.is_contiguous():
        gelu_flat[lambda meta: (kp.cdiv(x.numel(), meta["CHUNK"]),)](x, out, x.numel(), TANH=tanh)
    else:
        check_rows(x, "x")
        sizes, strides = kp.collapse_rows(x, ndims=3)
        rows = rows_of(x, sizes)
        gelu_rows[grid_of(rows)](x, out, RowStrides(*strides), rows, TANH=tanh)
    return out


def reference(x, approximate=0):
    """The same with torch, in any float dtype."""
    import torch  # builds do without it

    return torch.nn.functional.gelu(x, approximate="tanh" if approximate else "none")
