"""rms_norm over the last dimension, with the meaning of torch.nn.functional.rms_norm."""

import kernelpack as kp
import kernelpack.language as tl

from ._rows import (
    DTYPES,
    ROW_RANGES,
    WHOLE_ROWS,
    ask_for_row,
    check_columns,
    check_rows,
    row_config,
    row_offset,
    rows_ahead,
    rows_per_program,
    whole_row,
)

RANGES = ROW_RANGES


@kp.jit
def rms_norm_kernel(
    x,
    weight,
    out,
    eps,
    stride0: tl.int64,
    stride1: tl.int64,
    stride2: tl.int64,
    size1: tl.int64,
    size2: tl.int64,
    rows: tl.int64,
    columns,
    row_count,
    WHOLE: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Walks `row_count` rows: each in one tile of WHOLE elements, or where that is 0 twice in blocks: sum of squares, result."""
    if WHOLE:
        row = tl.program_id(0).to(tl.int64)  # row_count is 1: a loop would take registers
        source = x + row_offset(row, size1, size2, stride0, stride1, stride2)
        target = out + row * columns
        later = x + row_offset(row + AHEAD, size1, size2, stride0, stride1, stride2)
        offsets = tl.arange(0, WHOLE)
        inside = offsets < columns
        policy: tl.constexpr = "evict_first" if AHEAD else ""  # rows that were asked for stay in the caches
        value = tl.load(source + offsets, mask=inside, other=0.0, eviction_policy=policy).to(tl.float32)
        if weight is not None and not AHEAD:
            factor = tl.load(weight + offsets, mask=inside, other=0.0)  # arrives while the sum is made
        squares = tl.sum(value * value, axis=0)
        if AHEAD:
            # the sum is known when this row is there: it comes first
            ask_for_row(later, columns, (row + AHEAD < rows) & (squares < float("inf")), WHOLE)
            if weight is not None:
                factor = tl.load(weight + offsets, mask=inside, other=0.0)  # earlier it would take registers that rows need
        value *= tl.rsqrt(squares / columns + eps)
        if weight is not None:
            value *= factor.to(tl.float32)
        tl.store(target + offsets, value, mask=inside, cache_modifier=".cs" if AHEAD else "")
    else:
        first = tl.program_id(0).to(tl.int64) * row_count
        for row in range(first, tl.minimum(first + row_count, rows)):
            source = x + row_offset(row, size1, size2, stride0, stride1, stride2)
            target = out + row * columns
            squares = tl.zeros([BLOCK], tl.float32)
            for begin in range(0, columns, BLOCK):
                offsets = begin + tl.arange(0, BLOCK)
                value = tl.load(source + offsets, mask=offsets < columns, other=0.0).to(tl.float32)
                squares = tl.fma(value, value, squares)
            scale = tl.rsqrt(tl.sum(squares, axis=0) / columns + eps)
            for begin in range(0, columns, BLOCK):
                offsets = begin + tl.arange(0, BLOCK)
                inside = offsets < columns
                value = tl.load(source + offsets, mask=inside).to(tl.float32) * scale
                if weight is not None:
                    value *= tl.load(weight + offsets, mask=inside).to(tl.float32)
                tl.store(target + offsets, value, mask=inside)


def config(point):
    if point.target.backend == "cpu":
        return kp.Config({"BLOCK": 128, "AHEAD": 0}) if point["WHOLE"] == 0 else None
    return row_config(point, {"AHEAD": rows_ahead(point)})


@kp.op(
    "rms_norm(Tensor x, Tensor? weight=None, float? eps=None) -> Tensor",
    variants={"x": DTYPES, "WHOLE": (0, *WHOLE_ROWS)},
    configs={"": config},
)
def rms_norm(x, weight, eps):
    """Returns x / sqrt(mean(x^2) + eps) * weight along the last dimension, in x's shape and dtype.

    `weight` has x's dtype and one value for each element of a row. `eps` is 2^-23 where not given.
    """
    check_rows(x, "x")
    if weight is not None:
        check_columns(weight, "weight", x)
    out = kp.empty_like(x)
    if eps is None:
        eps = 2.0**-23
    (size0, size1, size2), (stride0, stride1, stride2) = kp.collapse_rows(x, ndims=3)
    rows = size0 * size1 * size2
    row_count = rows_per_program(x)
    grid = (kp.cdiv(rows, row_count),)
    rms_norm_kernel[grid](
        x, weight, out, eps, stride0, stride1, stride2, size1, size2, rows, x.shape[-1], row_count, WHOLE=whole_row(x)
    )
    return out


def reference(x, weight=None, eps=None):
    """The same with torch, in any float dtype."""
    import torch  # builds do without it

    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, 2.0**-23 if eps is None else eps)
