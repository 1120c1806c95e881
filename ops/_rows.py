"""What ops along the last dimension share: their dtypes, the checks of a tensor's rows, and where a row begins."""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.language import hopper

DTYPES = [tl.float32, tl.float16, tl.bfloat16]

ROW_RANGES = {"dtypes": ("float32", "float16", "bfloat16"), "columns": (0, 2**31 - 1), "row_dimensions": (0, 3)}
"""The RANGES of an op that takes rows of any number and length."""

ELEMENTS_PER_PROGRAM = 16384
"""On a CPU a program takes as many rows as hold about this many elements: a few microseconds of work."""
SHARED_FROM, LEAST_ELEMENTS, ENOUGH_PROGRAMS = 32768, 4096, 32
"""Fewer where so many elements are to be shared among threads: down to the second number, while there are not that many programs."""
LEAST_COLUMNS = 64
"""As many elements a row counts at least: shorter ones take as long."""


def check_rows(x, name):
    """A host function's check that the last dimension is there and can be read without strides."""
    kp.check(x.dim() >= 1, f"{name} has no dimensions, expected at least one")
    check_contiguous(x, name)


def check_contiguous(x, name):
    """A host function's check that the last dimension, which is there, can be read without strides."""
    kp.check(
        x.stride(-1) == 1 or x.shape[-1] <= 1,
        f"the last dimension of {name} must be contiguous, its stride is {x.stride(-1)}"
        "\n  to fix: call .contiguous() on the tensor before the op",
    )


def check_columns(parameter, name, x):
    """A host function's check that a parameter holds one value for each element of x's last dimension."""
    kp.check(
        parameter.dim() == 1 and parameter.shape[0] == x.shape[-1],
        f"{name} has shape {parameter.shape}, expected one dimension of {x.shape[-1]}, the last of x",
    )
    kp.check(
        parameter.stride(-1) == 1 or parameter.shape[0] <= 1,
        f"{name} must be contiguous, its stride is {parameter.stride(-1)}\n  to fix: call .contiguous() on it before the op",
    )


class Rows(NamedTuple):
    """The rows of a tensor, whose dimensions before the last collapse to three: outer, middle, inner. There are `count` rows of `columns`
    elements; a program takes `per_program`."""

    middle: tl.int64
    inner: tl.int64
    count: tl.int64
    columns: int
    per_program: int


class RowStrides(NamedTuple):
    """How many elements lie from one row to the next, along each of the three dimensions."""

    outer: tl.int64
    middle: tl.int64
    inner: tl.int64


def rows_of(x, sizes):
    """Returns the Rows of x, in a host function, whose dimensions before the last collapse to `sizes`. On a GPU a program takes one:
    programs run side by side."""
    outer, middle, inner = sizes
    count, columns = outer * middle * inner, max(x.shape[-1], LEAST_COLUMNS)
    elements = ELEMENTS_PER_PROGRAM
    if count * columns >= SHARED_FROM:
        elements = min(max(count * columns // ENOUGH_PROGRAMS, LEAST_ELEMENTS), ELEMENTS_PER_PROGRAM)
    per_program = 1 if x.is_cuda else max(1, elements // columns)
    return Rows(middle, inner, count, x.shape[-1], per_program)


def grid_of(rows):
    """Returns the grid of a kernel that walks over Rows, in a host function."""
    return (kp.cdiv(rows.count, rows.per_program),)


@kp.jit
def own_rows(rows):
    """Returns the first of this program's rows, and the first that is not."""
    first = tl.program_id(0).to(tl.int64) * rows.per_program
    return first, tl.minimum(first + rows.per_program, rows.count)


@kp.jit
def row_offset(row, rows, strides):
    """Returns where a row begins, in elements."""
    if row < rows.inner:  # of contiguous tensors every row: two divisions of 64 bits would take longer than a short row
        return row * strides.inner
    outer = row // rows.inner
    return (outer // rows.middle) * strides.outer + (outer % rows.middle) * strides.middle + (row % rows.inner) * strides.inner


WHOLE_ROWS = {1024: 4, 4096: 4, 8192: 4, 16384: 8, 32768: 16}
"""On a GPU: the tiles that hold a whole row, so that it is read once, and each one's warps: 64 elements a thread where that is
possible keep most bytes in flight, and the sums short (docs/h100.md)."""


def whole_row(x):
    """Returns the tile for a row of x: on a GPU the smallest of WHOLE_ROWS that holds it, else 0, which means block by block."""
    columns = x.shape[-1]
    tile = 0
    if x.is_cuda and columns <= 32768:
        if columns <= 4096:
            tile = 1024 if columns <= 1024 else 4096
        else:
            tile = 8192 if columns <= 8192 else 16384 if columns <= 16384 else 32768
    return tile


ROWS_AHEAD = 132
"""The multiprocessors of a Hopper GPU (H100 SXM, H200). Each works on one of the longest rows at a time."""


def rows_ahead(point):
    """Returns AHEAD for a kernel with a WHOLE axis: how many rows after a row comes the one that is asked for meanwhile, 0 for none.

    A row of the longest tile fills a multiprocessor's registers: nothing is loaded while it is summed up (docs/h100.md).
    """
    return ROWS_AHEAD if point["WHOLE"] == 32768 and str(point.target) == "cuda:sm_90a" else 0


@kp.jit
def ask_for_row(source, columns, wanted, TILE: tl.constexpr):
    """Has a row, which fits into a tile, brought into the L2 cache, if it is wanted."""
    line: tl.constexpr = 1024 // source.dtype.element_ty.primitive_bitwidth  # elements of 128 bytes
    if wanted:
        hopper.prefetch(source + tl.minimum(tl.arange(0, TILE // line) * line, columns - 1))


def row_config(point, more=None, warps=WHOLE_ROWS, launch_pdl=None):
    """Returns a GPU's config for a kernel with a WHOLE axis. Rows that are too long for a tile are read from the cache again, in
    blocks. `more` are other constexprs, `warps` those of each tile; launch_pdl is Config's."""
    return kp.Config({"BLOCK": 8192, **(more or {})}, num_warps=warps.get(point["WHOLE"], 16), launch_pdl=launch_pdl)


def check_whole(x, name):
    """A host function's check that a tensor is contiguous."""
    kp.check(
        x.is_contiguous(),
        f"{name} must be contiguous, its strides are {x.stride()}\n  to fix: call .contiguous() on it before the op",
    )
