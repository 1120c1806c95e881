"""add_rms_norm: the sum of a layer's input and its residual, and the norm of that sum, in one pass over memory."""

import kernelpack as kp
import kernelpack.language as tl

from ._roles import begin_early, early
from ._rows import (
    DTYPES,
    ROW_RANGES,
    RowStrides,
    check_columns,
    check_rows,
    grid_of,
    own_rows,
    row_offset,
    rows_of,
)

RANGES = ROW_RANGES

TILES = {2048: 4, 8192: 8}
"""On a GPU: the tiles that hold a whole row in registers, and each one's warps. Longer rows are read twice, in blocks."""


@kp.jit
def add_to(residual, x, offsets, inside):
    """Adds a block of x to one of the residual. Returns the sum as it is kept: rounded to the residual's dtype."""
    value = tl.load(x + offsets, mask=inside, other=0.0).to(tl.float32)
    value += tl.load(residual + offsets, mask=inside, other=0.0).to(tl.float32)
    kept = value.to(residual.dtype.element_ty)
    tl.store(residual + offsets, kept, mask=inside)
    return kept.to(tl.float32)


@kp.jit
def add_normalize_row(x, residual, weight, target, eps, columns, WHOLE: tl.constexpr):
    """Takes a row in one tile of WHOLE elements."""
    offsets = tl.arange(0, WHOLE)
    inside = offsets < columns
    factor = tl.load(weight + offsets, mask=inside, other=0.0).to(tl.float32)
    value = add_to(residual, x, offsets, inside)
    value *= tl.rsqrt(tl.sum(value * value, axis=0) / columns + eps)
    tl.store(target + offsets, value * factor, mask=inside)


@kp.jit
def add_normalize_in_blocks(x, residual, weight, target, eps, columns, BLOCK: tl.constexpr):
    """Takes a row in blocks, twice: for the sum and its squares, then for the result, of the residual that the first time wrote."""
    squares = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, columns, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        value = add_to(residual, x, offsets, offsets < columns)
        squares = tl.fma(value, value, squares)
    scale = tl.rsqrt(tl.sum(squares, axis=0) / columns + eps)
    for begin in range(0, columns, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        inside = offsets < columns
        value = tl.load(residual + offsets, mask=inside).to(tl.float32) * scale
        tl.store(target + offsets, value * tl.load(weight + offsets, mask=inside).to(tl.float32), mask=inside)


@kp.jit
def add_rms_norm_kernel(
    x, residual, weight, out, eps, x_strides, residual_strides, rows, WHOLE: tl.constexpr, BLOCK: tl.constexpr
):
    """Takes one row in a tile of WHOLE elements or, where WHOLE is 0, a program's rows in blocks of BLOCK."""
    begin_early()
    if WHOLE:
        row = tl.program_id(0).to(tl.int64)  # a program's only one
        source, sums = x + row_offset(row, rows, x_strides), residual + row_offset(row, rows, residual_strides)
        add_normalize_row(source, sums, weight, out + row * rows.columns, eps, rows.columns, WHOLE)
    else:
        first, stop = own_rows(rows)
        for row in range(first, stop):
            source, sums = x + row_offset(row, rows, x_strides), residual + row_offset(row, rows, residual_strides)
            add_normalize_in_blocks(source, sums, weight, out + row * rows.columns, eps, rows.columns, BLOCK)


def config(point):
    """TILE is what the host function asks for. Arguments that are not aligned are read in blocks, whatever it is: so all tiles share a
    kernel."""
    if point.target.backend == "cpu":
        return kp.Config({"WHOLE": 0, "BLOCK": 128}) if point["TILE"] == 0 else None
    whole = point["TILE"] if point.specialized else 0
    return kp.Config({"WHOLE": whole, "BLOCK": 0 if whole else 4096}, num_warps=TILES.get(whole, 16), launch_pdl=early(point))


def tile_of(x):
    """Returns the smallest of TILES that holds a row of x, in a host function; 0 on a CPU, and where none does."""
    tile = 0
    if x.is_cuda and x.shape[-1] <= 8192:
        tile = 2048 if x.shape[-1] <= 2048 else 8192
    return tile


@kp.op(
    "add_rms_norm(Tensor x, Tensor(a!) residual, Tensor weight, float? eps=None) -> Tensor",
    variants={"x": DTYPES, "TILE": (0, *TILES)},
    configs={"": config},
    specialize=[kp.aligned(inner=8)],
)
def add_rms_norm(x, residual, weight, eps):
    """Adds x to `residual`, in place, and returns rms_norm of the sum: residual / sqrt(mean(residual^2) + eps) * weight.

    `x` and `residual` have one shape and dtype, `weight` has that dtype and one value for each element of a row. The sum is rounded to
    that dtype before it is normalized. `eps` is 2^-23 where not given. No element of `residual` may lie twice in memory; it may be `x`
    itself.
    """
    kp.check(residual.shape == x.shape, f"residual has shape {residual.shape}, x has {x.shape}")
    check_rows(x, "x")
    check_rows(residual, "residual")
    check_columns(weight, "weight", x)
    out = kp.empty_like(x)
    if eps is None:
        eps = 2.0**-23
    sizes, x_strides, residual_strides = kp.collapse_rows(x, residual, ndims=3)
    rows = rows_of(x, sizes)
    add_rms_norm_kernel[grid_of(rows)](
        x, residual, weight, out, eps, RowStrides(*x_strides), RowStrides(*residual_strides), rows, TILE=tile_of(x)
    )
    return out


def reference(x, residual, weight, eps=None):
    """The same with torch, in any float dtype; returns the result and the residual, and writes to no argument."""
    import torch  # builds do without it

    total = residual + x
    return torch.nn.functional.rms_norm(total, (x.shape[-1],), weight, 2.0**-23 if eps is None else eps), total
