"""add_rms_norm whose result is quantized: 8 bits for each element, and a scale for each row."""

import kernelpack as kp
import kernelpack.language as tl

from ._roles import begin_early, early
from ._rows import RowStrides, check_columns, check_rows, grid_of, own_rows, row_offset, rows_of
from .add_rms_norm import TILES, add_to, tile_of

ROUNDING = tl.constexpr(1.5 * 2.0**23)
"""float32 numbers of this size have no bits after the point: adding and subtracting it rounds smaller ones, halves to even."""


@kp.jit
def store_quantized(target, value, peak, inside):
    """Stores values as parts of the row's peak, in steps of an 8-bit number. A row of zeros gives zeros."""
    value = tl.where(peak > 0.0, value / peak, 0.0)
    if target.dtype.element_ty == tl.int8:
        tl.store(target, (value * 127.0 + ROUNDING - ROUNDING).to(tl.int8), mask=inside)
    else:
        tl.store(target, (value * 448.0).to(target.dtype.element_ty), mask=inside)


@kp.jit
def scale_of(peak, squares, columns, eps, steps):
    """Returns what the steps of a row are multiplied by. Its norm is part of that alone: steps are parts of the peak."""
    return peak / steps * tl.rsqrt(squares / columns + eps)


@kp.jit
def quantize_row(x, residual, weight, target, scale, eps, columns, steps, WHOLE: tl.constexpr):
    """Takes a row in one tile of WHOLE elements."""
    offsets = tl.arange(0, WHOLE)
    inside = offsets < columns
    factor = tl.load(weight + offsets, mask=inside, other=0.0).to(tl.float32)
    value = add_to(residual, x, offsets, inside)
    squares = tl.sum(value * value, axis=0)
    value *= factor
    peak = tl.max(tl.abs(value), axis=0)
    tl.store(scale, scale_of(peak, squares, columns, eps, steps))
    store_quantized(target + offsets, value, peak, inside)


@kp.jit
def quantize_in_blocks(x, residual, weight, target, scale, eps, columns, steps, BLOCK: tl.constexpr):
    """Takes a row in blocks, twice: for the sum, its squares and its peak, then for the result."""
    squares, peaks = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for begin in range(0, columns, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        inside = offsets < columns
        value = add_to(residual, x, offsets, inside)
        squares = tl.fma(value, value, squares)
        peaks = tl.maximum(peaks, tl.abs(value * tl.load(weight + offsets, mask=inside, other=0.0).to(tl.float32)))
    peak = tl.max(peaks, axis=0)
    tl.store(scale, scale_of(peak, tl.sum(squares, axis=0), columns, eps, steps))
    for begin in range(0, columns, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        inside = offsets < columns
        value = tl.load(residual + offsets, mask=inside, other=0.0).to(tl.float32)
        value *= tl.load(weight + offsets, mask=inside, other=0.0).to(tl.float32)
        store_quantized(target + offsets, value, peak, inside)


@kp.jit
def quantized_kernel(
    x, residual, weight, out, scales, eps, x_strides, residual_strides, rows, WHOLE: tl.constexpr, BLOCK: tl.constexpr
):
    """Takes one row in a tile of WHOLE elements or, where WHOLE is 0, a program's rows in blocks of BLOCK."""
    begin_early()
    steps: tl.constexpr = 127.0 if out.dtype.element_ty == tl.int8 else 448.0
    if WHOLE:
        row = tl.program_id(0).to(tl.int64)  # a program's only one
        source, sums = x + row_offset(row, rows, x_strides), residual + row_offset(row, rows, residual_strides)
        quantize_row(source, sums, weight, out + row * rows.columns, scales + row, eps, rows.columns, steps, WHOLE)
    else:
        first, stop = own_rows(rows)
        for row in range(first, stop):
            source, sums = x + row_offset(row, rows, x_strides), residual + row_offset(row, rows, residual_strides)
            quantize_in_blocks(source, sums, weight, out + row * rows.columns, scales + row, eps, rows.columns, steps, BLOCK)


def config(point):
    """As add_rms_norm's: arguments that are not aligned share a kernel."""
    if point.target.backend == "cpu":
        return kp.Config({"WHOLE": 0, "BLOCK": 128}) if point["TILE"] == 0 else None
    whole = point["TILE"] if point.specialized else 0
    return kp.Config({"WHOLE": whole, "BLOCK": 0 if whole else 4096}, num_warps=TILES.get(whole, 16), launch_pdl=early(point))


def quantized(x, residual, weight, eps, dtype):
    """A host function's body: returns the result in `dtype` and its scales."""
    kp.check(residual.shape == x.shape, f"residual has shape {residual.shape}, x has {x.shape}")
    check_rows(x, "x")
    check_rows(residual, "residual")
    check_columns(weight, "weight", x)
    out = kp.empty(x.shape, dtype, x.device)
    scales = kp.empty((*x.shape[:-1], 1), tl.float32, x.device)
    if eps is None:
        eps = 2.0**-23
    sizes, x_strides, residual_strides = kp.collapse_rows(x, residual, ndims=3)
    rows = rows_of(x, sizes)
    quantized_kernel[grid_of(rows)](
        x, residual, weight, out, scales, eps, RowStrides(*x_strides), RowStrides(*residual_strides), rows, TILE=tile_of(x)
    )
    return out, scales


def reference_in(dtype, x, residual, weight, eps):
    """The same with torch, in any float dtype; returns the result, the scales and the residual, and writes to no argument."""
    import torch  # builds do without it

    total = residual + x
    wide = total.to(torch.promote_types(total.dtype, torch.float32))
    value = wide * weight
    peak = value.abs().amax(-1, keepdim=True) if x.shape[-1] else value.new_zeros((*x.shape[:-1], 1))
    steps = 127.0 if dtype == torch.int8 else 448.0
    parts = torch.where(peak > 0.0, value / peak, 0.0) * steps
    scales = peak / steps * torch.rsqrt(wide.square().mean(-1, keepdim=True) + (2.0**-23 if eps is None else eps))
    return (parts.round() if dtype == torch.int8 else parts).to(dtype), scales, total
