"""silu_and_mul: silu of the first half of each row times its second half (SwiGLU after one projection)."""

import kernelpack as kp

from ._gated import Gate, config, gated
from ._rows import DTYPES, ROW_RANGES

RANGES = ROW_RANGES


@kp.op("silu_and_mul(Tensor x) -> Tensor", variants={"x": DTYPES, "GATE": [0]}, configs={"": config})
def silu_and_mul(x):
    """Returns silu(gate) * value [..., n] of x [..., 2n], in its dtype: the first n elements of a row are its gates, the others its values."""
    return gated(x, Gate.SILU)


def reference(x):
    """The same with torch, in any float dtype."""
    import torch  # builds do without it

    gate, value = x.chunk(2, -1)
    return torch.nn.functional.silu(gate) * value
