"""add_rms_norm_int8: add_rms_norm whose result is int8, with a scale for each row."""

import kernelpack as kp
import kernelpack.language as tl

from ._quantized_rows import config, quantized, reference_in
from ._rows import DTYPES, ROW_RANGES
from .add_rms_norm import TILES

RANGES = ROW_RANGES


@kp.op(
    "add_rms_norm_int8(Tensor x, Tensor(a!) residual, Tensor weight, float? eps=None) -> (Tensor out, Tensor scales)",
    variants={"x": DTYPES, "TILE": (0, *TILES)},
    configs={"": config},
)
def add_rms_norm_int8(x, residual, weight, eps):
    """Adds x to `residual`, in place, and returns rms_norm of the sum as `out` * `scales`: `out` in x's shape and int8, `scales`
    [..., 1], float32, such that the largest element of a row is 127 or -127.

    `x`, `residual`, `weight` and `eps` are those of add_rms_norm; the result is not rounded to x's dtype before it is quantized. A row
    of zeros has scale 0, a row with NaN or infinity has scale NaN.
    """
    return quantized(x, residual, weight, eps, tl.int8)


def reference(x, residual, weight, eps=None):
    """The same with torch, in any float dtype; returns the result, the scales and the residual, and writes to no argument."""
    import torch  # builds do without it

    return reference_in(torch.int8, x, residual, weight, eps)
