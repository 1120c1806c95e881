"""rms_norm over the last dimension, with the meaning of torch.nn.functional.rms_norm."""

import kernelpack as kp
import kernelpack.language as tl

from ._roles import begin_early, early
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


@kp.jit
def normalize_row(source, later, weight, target, eps, row, rows, WHOLE: tl.constexpr, AHEAD: tl.constexpr):
    """Normalizes a row in one tile of WHOLE elements. With AHEAD, the one that comes so many rows later, at `later`, is asked for."""
    columns = rows.columns
    offsets = tl.arange(0, WHOLE)
    inside = offsets < columns
    policy: tl.constexpr = "evict_first" if AHEAD else ""  # rows that were asked for stay in the caches
    value = tl.load(source + offsets, mask=inside, other=0.0, eviction_policy=policy).to(tl.float32)
    if weight is not None and not AHEAD:
        factor = tl.load(weight + offsets, mask=inside, other=0.0)  # arrives while the sum is made
    squares = tl.sum(value * value, axis=0)
    if AHEAD:
        # the sum is known when this row is there: it comes first
        ask_for_row(later, columns, (row + AHEAD < rows.count) & (squares < float("inf")), WHOLE)
        if weight is not None:
            factor = tl.load(weight + offsets, mask=inside, other=0.0)  # earlier it would take registers that rows need
    value *= tl.rsqrt(squares / columns + eps)
    if weight is not None:
        value *= factor.to(tl.float32)
    tl.store(target + offsets, value, mask=inside, cache_modifier=".cs" if AHEAD else "")


@kp.jit
def normalize_in_blocks(source, weight, target, eps, columns, BLOCK: tl.constexpr):
    """Normalizes a row that is read twice in blocks: for the sum of squares, for the result."""
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


@kp.jit
def rms_norm_kernel(x, weight, out, eps, strides, rows, WHOLE: tl.constexpr, BLOCK: tl.constexpr, AHEAD: tl.constexpr):
    """Normalizes one row in a tile of WHOLE elements or, where WHOLE is 0, a program's rows in blocks of BLOCK. AHEAD: how many rows ahead
    memory is asked for, 0 for none."""
    begin_early()
    if WHOLE:
        row = tl.program_id(0).to(tl.int64)  # a program's only one: a loop would take registers
        source = x + row_offset(row, rows, strides)
        target = out + row * rows.columns
        later = x + row_offset(row + AHEAD, rows, strides)
        normalize_row(source, later, weight, target, eps, row, rows, WHOLE, AHEAD)
    else:
        first, stop = own_rows(rows)
        for row in range(first, stop):
            source = x + row_offset(row, rows, strides)
            normalize_in_blocks(source, weight, out + row * rows.columns, eps, rows.columns, BLOCK)


def config(point):
    if point.target.backend == "cpu":
        return kp.Config({"BLOCK": 64, "AHEAD": 0}) if point["WHOLE"] == 0 else None
    return row_config(point, {"AHEAD": rows_ahead(point)}, launch_pdl=early(point))


@kp.op(
    "rms_norm(Tensor x, Tensor? weight=None, float? eps=None) -> Tensor",
    variants={"x": DTYPES, "WHOLE": (0, *WHOLE_ROWS)},
    configs={"": config},
    specialize=[kp.aligned(inner=8)],
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
    sizes, strides = kp.collapse_rows(x, ndims=3)
    rows = rows_of(x, sizes)
    rms_norm_kernel[grid_of(rows)](x, weight, out, eps, RowStrides(*strides), rows, WHOLE=whole_row(x))
    return out


def reference(x, weight=None, eps=None):
    """The same with torch, in any float dtype."""
    import torch  # builds do without it

    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, 2.0**-23 if eps is None else eps)
