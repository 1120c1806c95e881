"""What kernels of matrix products have in common: sizes, the order of blocks, what follows the sums."""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl


class Shape(NamedTuple):
    """The sizes of a product: `outer` times `batches` of [rows, depth] times [depth, columns]; None, for one alone."""

    outer: int
    batches: int
    rows: int
    columns: int
    depth: int


class Strides(NamedTuple):
    """Strides in elements: of a's and b's batches, of a's rows, and of that dimension of b's matrices which is not contiguous. Batches are
    two dimensions, the outer one first; None, where there are none. Of a product with one row, `a_row` is 0 where one value of bias is for
    all columns."""

    a_outer: tl.int64
    a_batch: tl.int64
    a_row: tl.int64
    b_outer: tl.int64
    b_batch: tl.int64
    b_step: tl.int64


class Blocks(NamedTuple):
    """How a product is cut, at compile time: blocks of M rows, N columns and K steps, GROUP rows of blocks at a time. B_TRANSPOSED: b is
    contiguous along k. SLOTS: how many tiles of either operand a ring holds, where warps have roles."""

    M: tl.constexpr
    N: tl.constexpr
    K: tl.constexpr
    GROUP: tl.constexpr
    B_TRANSPOSED: tl.constexpr
    SLOTS: tl.constexpr = 0


class Scales(NamedTuple):
    """Scales of a's rows and b's columns; a stride of 0 stands for one value for all."""

    a: tl.tensor
    b: tl.tensor
    a_step: int
    b_step: int


class Epilogue(NamedTuple):
    """What follows the sums: times the scales of rows and columns, plus bias, then an activation. Without `scales` there are none; without
    `has_bias`, `bias` is not read."""

    bias: tl.tensor
    has_bias: tl.tensor
    activation: tl.tensor
    scales: Scales = None


@kp.jit
def activate(x, activation):
    """Applies one of Activation, in float32; the branch is the same for a whole program."""
    if activation == 1:
        x = tl.where(x < 0.0, 0.0, x)
    elif activation == 2:
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif activation >= 3:
        # both are x * sigmoid(t): tanh(u) is 2 sigmoid(2 u) - 1
        t = tl.where(activation == 3, x * (1.5957691216057308 + 0.07135481282553145 * x * x), x)
        x = x / (1.0 + tl.exp(-t))
    return x


@kp.jit
def place_of(block, blocks_m, blocks_n, rows_at_a_time):
    """Returns the row and column of a block. Blocks that run at the same time share rows of a and columns of b: rows_at_a_time rows of
    blocks are walked column by column."""
    group = block // (rows_at_a_time * blocks_n)
    height = tl.minimum(blocks_m - group * rows_at_a_time, rows_at_a_time)
    place = block % (rows_at_a_time * blocks_n)
    return group * rows_at_a_time + place % height, place // height
