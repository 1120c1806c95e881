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
def gelu_of(x, TANH: tl.constexpr):
    """x times the normal distribution's cumulative function: by erf, or as 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u))."""
    if TANH:
        return x / (1.0 + tl.exp(x * tl.fma(x * x, -0.07135481282553, -1.5957691216057308)))  # u = sqrt(2/pi) (x + 0.044715 x^3)
    return 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476))


@kp.jit
def gelu_flat(x, out, n: tl.int64, TANH: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    value = tl.load(x + offsets, mask=inside).to(tl.float32)
    tl.store(out + offsets, gelu_of(value, TANH), mask=inside)


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
            tl.store(out + row * columns + offsets, gelu_of(value, TANH), mask=inside)


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
