"""What the kernels of matmul have in common: the order of blocks, activations."""

import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def activate(x, activation):
    """Applies one of Activation, in float32; the branch is the same for a whole program."""
    if activation == 1:
        x = tl.where(x < 0.0, 0.0, x)
    elif activation == 2:
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif activation == 3:
        x = 0.5 * x * (1.0 + tl.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
    elif activation == 4:
        x = x / (1.0 + tl.exp(-x))
    return x


@kp.jit
def place_of(block, blocks_m, blocks_n, rows_at_a_time):
    """Returns the row and column of a block. Blocks that run at the same time share rows of a and columns of b: rows_at_a_time rows of
    blocks are walked column by column."""
    group = block // (rows_at_a_time * blocks_n)
    height = tl.minimum(blocks_m - group * rows_at_a_time, rows_at_a_time)
    place = block % (rows_at_a_time * blocks_n)
    return group * rows_at_a_time + place % height, place // height
