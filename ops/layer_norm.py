"""layer_norm over the last dimension, with the meaning of torch.nn.functional.layer_norm."""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl

from ._rows import (
    DTYPES,
    ROW_RANGES,
    WHOLE_ROWS,
    RowStrides,
    ask_for_row,
    check_columns,
    check_rows,
    grid_of,
    own_rows,
    row_config,
    row_offset,
    rows_ahead,
    rows_of,
    whole_row,
)  # fmt: skip

RANGES = ROW_RANGES


SHRINK = tl.constexpr(2.0**-100)
"""What rows are multiplied with whose sums overflow."""


@kp.jit
def is_known(mean, variance, dtype: tl.constexpr, spread: tl.constexpr):
    """Returns whether a row's mean and variance need no second look. What rounding left in the mean counts where the variance is less
    than `spread` of its square, or 2^-16 where results have 16 bits. Sums that overflowed are infinite, or no numbers."""
    least: tl.constexpr = spread if dtype == tl.float32 else 2.0**-16
    return (mean * mean * least <= variance) & (variance < float("inf"))


@kp.jit
def shrunken_eps(eps):
    """Returns what is added to the variance of a row that was multiplied with SHRINK: more than nothing, as eps was."""
    return tl.where(eps > 0.0, tl.maximum(eps * SHRINK * SHRINK, 2.0**-126), eps)


@kp.jit
def mean_of(source, columns, factor, mean, SQUARED: tl.constexpr, BLOCK: tl.constexpr):
    """Returns the mean of x * factor - mean over a row, or of its square."""
    total = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, columns, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        inside = offsets < columns
        value = tl.load(source + offsets, mask=inside, other=0.0).to(tl.float32)
        centred = tl.where(inside, tl.fma(value, factor, -mean), 0.0)
        total = tl.fma(centred, centred, total) if SQUARED else total + centred
    return tl.div_rn(tl.sum(total, axis=0), columns * 1.0)  # of equal elements nothing may be left


class Affine(NamedTuple):
    """What results are multiplied with, and what is added to them, one value for each column; or None."""

    weight: tl.tensor
    bias: tl.tensor


@kp.jit
def write_row(source, affine, target, columns, factor, mean, scale, BLOCK: tl.constexpr):
    """Writes (x * factor - mean) * scale * weight + bias."""
    for begin in range(0, columns, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        inside = offsets < columns
        value = tl.fma(tl.load(source + offsets, mask=inside).to(tl.float32), factor, -mean) * scale
        if affine.weight is not None:
            value *= tl.load(affine.weight + offsets, mask=inside).to(tl.float32)
        if affine.bias is not None:
            value += tl.load(affine.bias + offsets, mask=inside).to(tl.float32)
        tl.store(target + offsets, value, mask=inside)


@kp.jit
def normalize_carefully(source, affine, target, eps, columns, mean, variance, BLOCK: tl.constexpr):
    """Normalizes a row whose sums overflowed, or whose mean needs what rounding has left in it taken out."""
    factor = 1.0
    if not variance < float("inf"):
        factor = SHRINK.value
        mean = mean_of(source, columns, factor, 0.0, False, BLOCK)
        eps = shrunken_eps(eps)
    mean += mean_of(source, columns, factor, mean, False, BLOCK)
    variance = mean_of(source, columns, factor, mean, True, BLOCK)
    write_row(source, affine, target, columns, factor, mean, tl.rsqrt(variance + eps), BLOCK)


@kp.jit
def normalize_row(source, later, affine, target, eps, row, rows, WHOLE: tl.constexpr, AHEAD: tl.constexpr):
    """Normalizes a row in one tile of WHOLE elements. With AHEAD, the one that comes so many rows later, at `later`, is asked for."""
    columns = rows.columns
    offsets = tl.arange(0, WHOLE)
    inside = offsets < columns
    # what is used once makes way in the caches for weight and bias, and for rows that were asked for (docs/h100.md)
    once: tl.constexpr = WHOLE <= 8192 or AHEAD > 0
    policy: tl.constexpr = "evict_first" if once else ""
    value = tl.load(source + offsets, mask=inside, other=0.0, eviction_policy=policy).to(tl.float32)
    mean = tl.sum(value, axis=0) / columns
    if AHEAD:
        # the sum is known when this row is there: it comes first
        ask_for_row(later, columns, (row + AHEAD < rows.count) & (mean < float("inf")), WHOLE)
    value = tl.where(inside, value - mean, 0.0)
    variance = tl.sum(value * value, axis=0) / columns
    value *= tl.rsqrt(variance + eps)
    if affine.weight is not None:  # loaded ahead they would take the registers that more rows in flight need
        value *= tl.load(affine.weight + offsets, mask=inside, other=0.0).to(tl.float32)
    if affine.bias is not None:
        value += tl.load(affine.bias + offsets, mask=inside, other=0.0).to(tl.float32)
    tl.store(target + offsets, value, mask=inside, cache_modifier=".cs" if once else "")
    if not is_known(mean, variance, source.dtype.element_ty, 2.0**-12):
        tl.debug_barrier()  # other threads may write what this one wrote
        normalize_carefully(source, affine, target, eps, columns, mean, variance, WHOLE // 4)


@kp.jit
def normalize_in_blocks(source, affine, target, eps, columns, BLOCK: tl.constexpr, READ: tl.constexpr):
    """Normalizes a row that is read three times in blocks: for the mean, for the squares of what is left, for the result."""
    total = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, columns, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        value = tl.load(source + offsets, mask=offsets < columns, other=0.0, eviction_policy=READ)
        total += value.to(tl.float32)
    mean = tl.sum(total, axis=0) / columns
    variance = mean_of(source, columns, 1.0, mean, True, BLOCK)
    if is_known(mean, variance, source.dtype.element_ty, 2.0**-8):
        write_row(source, affine, target, columns, 1.0, mean, tl.rsqrt(variance + eps), BLOCK)
    else:
        normalize_carefully(source, affine, target, eps, columns, mean, variance, BLOCK)


@kp.jit
def layer_norm_kernel(
    x, affine, out, eps, strides, rows, WHOLE: tl.constexpr, BLOCK: tl.constexpr, AHEAD: tl.constexpr, READ: tl.constexpr
):
    """Normalizes one row in a tile of WHOLE elements or, where WHOLE is 0, a program's rows in blocks of BLOCK.

    AHEAD: how many rows ahead memory is asked for, 0 for none. READ: the eviction policy of a block's first read, by which a CPU
    asks for memory ahead.
    """
    if WHOLE:
        row = tl.program_id(0)  # a program's only one: a loop would take registers, and 64 bits for it more
        source = x + row_offset(row, rows, strides)
        target = out + row.to(tl.int64) * rows.columns
        later = x + row_offset(row + AHEAD, rows, strides)
        normalize_row(source, later, affine, target, eps, row, rows, WHOLE, AHEAD)
    else:
        first, stop = own_rows(rows)
        for row in range(first, stop):
            source = x + row_offset(row, rows, strides)
            normalize_in_blocks(source, affine, out + row * rows.columns, eps, rows.columns, BLOCK, READ)


def config(point):
    if point.target.backend == "cpu":
        return kp.Config({"BLOCK": 64, "AHEAD": 0, "READ": "evict_first"}) if point["WHOLE"] == 0 else None
    if point["WHOLE"] and (point["weight"] is None) != (point["bias"] is None):
        return None  # seldom: block by block will do
    return row_config(point, {"AHEAD": rows_ahead(point), "READ": ""}, {**WHOLE_ROWS, 1024: 2})


@kp.op(
    "layer_norm(Tensor x, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor",
    variants={"x": DTYPES, "WHOLE": (0, *WHOLE_ROWS)},
    configs={"": config},
    specialize=[kp.aligned(inner=8)],
)
def layer_norm(x, weight, bias, eps):
    """Returns (x - mean) / sqrt(variance + eps) * weight + bias along the last dimension, in x's shape and dtype.

    `weight` and `bias` have x's dtype and one value for each element of a row.
    """
    check_rows(x, "x")
    if weight is not None:
        check_columns(weight, "weight", x)
    if bias is not None:
        check_columns(bias, "bias", x)
    out = kp.empty_like(x)
    sizes, strides = kp.collapse_rows(x, ndims=3)
    rows = rows_of(x, sizes)
    whole = whole_row(x) if (weight is None) == (bias is None) else 0
    layer_norm_kernel[grid_of(rows)](x, Affine(weight, bias), out, eps, RowStrides(*strides), rows, WHOLE=whole)
    return out


def reference(x, weight=None, bias=None, eps=1e-05):
    """The same with torch, in any float dtype."""
    import torch  # builds do without it

    return torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias, eps)
