"""gelu_and_mul: gelu of the first half of each row, exact or by tanh, times its second half (GeGLU after one projection)."""

import kernelpack as kp

from ._activations import Approximate, check_approximate
from ._gated import Gate, config, gated
from ._rows import DTYPES, ROW_RANGES

RANGES = ROW_RANGES


@kp.op("gelu_and_mul(Tensor x, *, int approximate=0) -> Tensor", variants={"x": DTYPES, "GATE": [1, 2]}, configs={"": config})
def gelu_and_mul(x, approximate):
    """Returns gelu(gate) * value [..., n] of x [..., 2n], in its dtype: the first n elements of a row are its gates, the others its values.
    `approximate` is an `Approximate`."""
    check_approximate(approximate)
    return gated(x, Gate.GELU_TANH if approximate == Approximate.TANH else Gate.GELU)


def reference(x, approximate=0):
    """The same with torch, in any float dtype."""
    import torch  # builds do without it

    gate, value = x.chunk(2, -1)
    return torch.nn.functional.gelu(gate, approximate="tanh" if approximate else "none") * value
