"""What ops along the last dimension share: their dtypes, the checks of a tensor's rows, and where a row begins."""

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.language import hopper

DTYPES = [tl.float32, tl.float16, tl.bfloat16]

ROW_RANGES = {"dtypes": ("float32", "float16", "bfloat16"), "columns": (0, 2**31 - 1), "row_dimensions": (0, 3)}
"""The RANGES of an op that takes rows of any number and length."""

ELEMENTS_PER_PROGRAM = 16384
"""On a CPU a program takes as many rows as hold about this many elements: a few microseconds of work."""


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


def rows_per_program(x):
    """Returns how many rows of x one program takes: one on a GPU, where programs run side by side."""
    return 1 if x.is_cuda else max(1, ELEMENTS_PER_PROGRAM // max(x.shape[-1], 1))


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
    """Returns AHEAD for a kernel with a WHOLE axis: how far behind a row is the one that is asked for while it is worked on, 0 for none.

    A row of the longest tile fills a multiprocessor's registers: nothing is loaded while it is summed up (docs/h100.md).
    """
    return ROWS_AHEAD if point["WHOLE"] == 32768 and str(point.target) == "cuda:sm_90a" else 0


@kp.jit
def ask_for_row(source, columns, wanted, TILE: tl.constexpr):
    """Has a row, which fits into a tile, brought into the L2 cache, if it is wanted."""
    line: tl.constexpr = 1024 // source.dtype.element_ty.primitive_bitwidth  # elements of 128 bytes
    if wanted:
        hopper.prefetch(source + tl.minimum(tl.arange(0, TILE // line) * line, columns - 1))


def row_config(point, more=None, warps=WHOLE_ROWS):
    """Returns a GPU's config for a kernel with a WHOLE axis. Rows that are too long for a tile are read from the cache again, in
    blocks. `more` are other constexprs, `warps` those of each tile."""
    return kp.Config({"BLOCK": 8192, **(more or {})}, num_warps=warps.get(point["WHOLE"], 16))


@kp.jit
def row_offset(row, size1, size2, stride0, stride1, stride2):
    """Returns where a row of three collapsed dimensions begins, in elements."""
    if row < size2:  # of contiguous tensors every row: two divisions of 64 bits would take longer than a short row
        return row * stride2
    outer = row // size2
    return (outer // size1) * stride0 + (outer % size1) * stride1 + (row % size2) * stride2
