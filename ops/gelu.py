"""gelu of every element, exact or by tanh, with the meaning of torch.nn.functional.gelu."""

import enum

import torch

import kernelpack as kp
import kernelpack.language as tl

from ._rows import DTYPES, check_rows, row_offset, rows_per_program

RANGES = {"dtypes": ("float32", "float16", "bfloat16"), "columns": (0, 2**31 - 1), "row_dimensions": (0, 3)}


class Approximate(enum.IntEnum):
    """How gelu is computed."""

    NONE = 0
    TANH = 1


@kp.jit
def tail(a, SHORT: tl.constexpr):
    """a (1 - Phi(a)) for a >= 0: Phi is the normal distribution's cumulative function, and log2(1 - Phi) a smooth polynomial.

    Fits of least maximum error, weighted by how much of the result it becomes: 7e-9 up to a = 9, and 6e-7 up to 6 where the
    result has 16 bits (SHORT). One polynomial for all a is half the work of erf, which is accurate near zero relatively to
    itself. Beyond, the result is that of 9 or 6, which is below 1e-18 or 1e-8.
    """
    if SHORT:
        a = tl.where(a > 6.0, 6.0, a)
        log = tl.fma(a, -0.0004925050889141858, 0.0072296056896448135)
        log = tl.fma(log, a, -0.05222080275416374)
        log = tl.fma(log, a, -0.459526389837265)
        log = tl.fma(log, a, -1.1510180234909058)
        log = tl.fma(log, a, -1.0000033378601074)
    else:
        a = tl.where(a > 9.0, 9.0, a)
        log = tl.fma(a, -1.960471074369252e-08, 6.620620638386754e-07)
        log = tl.fma(log, a, -9.24787309486419e-06)
        log = tl.fma(log, a, 6.825229502283037e-05)
        log = tl.fma(log, a, -0.0002558545093052089)
        log = tl.fma(log, a, -4.3504787754500285e-05)
        log = tl.fma(log, a, 0.006995941046625376)
        log = tl.fma(log, a, -0.05247296765446663)
        log = tl.fma(log, a, -0.45921066403388977)
        log = tl.fma(log, a, -1.1511054039001465)
        log = tl.fma(log, a, -1.0)
    return a * tl.exp2(log)


@kp.jit
def gelu_of(x, TANH: tl.constexpr, SHORT: tl.constexpr):
    """x Phi(x), or with tanh x / (1 + exp(-2u)), which is 0.5 x (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3)."""
    if TANH:
        bounded = tl.where(x < -20.0, -20.0, x)  # -inf over infinity would be NaN
        return bounded / (1.0 + tl.exp(bounded * tl.fma(x * x, -0.07135481282553, -1.5957691216057308)))
    return tl.where(x < 0.0, 0.0, x) - tail(tl.abs(x), SHORT)


@kp.jit
def gelu_flat(x, out, n: tl.int64, TANH: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    value = tl.load(x + offsets, mask=inside).to(tl.float32)
    tl.store(out + offsets, gelu_of(value, TANH, x.dtype.element_ty != tl.float32), mask=inside)


@kp.jit
def gelu_rows(
    x,
    out,
    stride0: tl.int64,
    stride1: tl.int64,
    stride2: tl.int64,
    size1: tl.int64,
    size2: tl.int64,
    rows: tl.int64,
    columns,
    row_count,
    TANH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    first = tl.program_id(0).to(tl.int64) * row_count
    for row in range(first, tl.minimum(first + row_count, rows)):
        source = x + row_offset(row, size1, size2, stride0, stride1, stride2)
        for begin in range(0, columns, BLOCK):
            offsets = begin + tl.arange(0, BLOCK)
            inside = offsets < columns
            value = tl.load(source + offsets, mask=inside).to(tl.float32)
            tl.store(out + row * columns + offsets, gelu_of(value, TANH, x.dtype.element_ty != tl.float32), mask=inside)


def config(point):
    """A flat launch has long blocks, which cost nothing at the ends of rows."""
    flat = point.kernel == "gelu_flat"
    if point.target.backend == "cpu":
        return kp.Config({"BLOCK": 2048 if flat else 64})
    return kp.Config({"BLOCK": 1024}, num_warps=4)


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
        gelu_flat[lambda meta: (kp.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), TANH=tanh)
    else:
        check_rows(x, "x")
        (size0, size1, size2), (stride0, stride1, stride2) = kp.collapse_rows(x, ndims=3)
        rows = size0 * size1 * size2
        row_count = rows_per_program(x)
        grid = (kp.cdiv(rows, row_count),)
        gelu_rows[grid](x, out, stride0, stride1, stride2, size1, size2, rows, x.shape[-1], row_count, TANH=tanh)
    return out


def reference(x, approximate=0):
    """The same with torch, in any float dtype."""
    return torch.nn.functional.gelu(x, approximate="tanh" if approximate else "none")
