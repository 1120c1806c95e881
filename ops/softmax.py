"""softmax over the last dimension, with the meaning of torch.softmax."""

import torch

import kernelpack as kp
import kernelpack.language as tl

from ._rows import DTYPES, check_rows, row_offset, rows_per_program

RANGES = {"dtypes": ("float32", "float16", "bfloat16"), "columns": (0, 2**31 - 1), "row_dimensions": (0, 3)}

LOG2E = tl.constexpr(1.4426950408889634)


@kp.jit
def softmax_kernel(
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
    BLOCK: tl.constexpr,
    KEEP: tl.constexpr,
):
    """Walks `row_count` rows, each three times in blocks: maximum, sum of exponentials, result.

    With KEEP the exponentials wait in a float32 output instead of being computed twice.
    """
    first = tl.program_id(0).to(tl.int64) * row_count
    for row in range(first, tl.minimum(first + row_count, rows)):
        source = x + row_offset(row, size1, size2, stride0, stride1, stride2)
        target = out + row * columns
        largest = tl.full([BLOCK], -float("inf"), tl.float32)
        for begin in range(0, columns, BLOCK):
            offsets = begin + tl.arange(0, BLOCK)
            value = tl.load(source + offsets, mask=offsets < columns, other=-float("inf")).to(tl.float32)
            largest = tl.where(value > largest, value, largest)  # skips NaN, which the sum brings back
        peak = tl.max(largest, axis=0) * LOG2E
        total = tl.zeros([BLOCK], tl.float32)
        for begin in range(0, columns, BLOCK):
            offsets = begin + tl.arange(0, BLOCK)
            inside = offsets < columns
            value = tl.load(source + offsets, mask=inside, other=-float("inf")).to(tl.float32)
            power = tl.exp2(tl.fma(value, LOG2E, -peak))
            total += power
            if KEEP and out.dtype.element_ty == tl.float32:
                tl.store(target + offsets, power, mask=inside)
        scale = 1.0 / tl.sum(total, axis=0)
        for begin in range(0, columns, BLOCK):
            offsets = begin + tl.arange(0, BLOCK)
            inside = offsets < columns
            if KEEP and out.dtype.element_ty == tl.float32:
                power = tl.load(target + offsets, mask=inside)
            else:
                value = tl.load(source + offsets, mask=inside, other=0.0).to(tl.float32)
                power = tl.exp2(tl.fma(value, LOG2E, -peak))
            tl.store(target + offsets, power * scale, mask=inside)


@kp.op(
    "softmax(Tensor x, int dim=-1) -> Tensor",
    variants={"x": DTYPES},
    configs={"cpu": kp.Config({"BLOCK": 64, "KEEP": True}), "cuda": kp.Config({"BLOCK": 1024, "KEEP": False}, num_warps=4)},
)
def softmax(x, dim):
    """Returns exp(x) / sum(exp(x)) along `dim`, which must be the last dimension, in x's shape and dtype."""
    check_rows(x, "x")
    kp.check(dim == -1 or dim == x.dim() - 1, f"dim is {dim}, expected the last dimension of x: -1")
    out = kp.empty_like(x)
    (size0, size1, size2), (stride0, stride1, stride2) = kp.collapse_rows(x, ndims=3)
    rows = size0 * size1 * size2
    row_count = rows_per_program(x)
    grid = (kp.cdiv(rows, row_count),)
    softmax_kernel[grid](x, out, stride0, stride1, stride2, size1, size2, rows, x.shape[-1], row_count)
    return out


def reference(x, dim=-1):
    """The same with torch, in any float dtype."""
    return torch.softmax(x, dim)
