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
