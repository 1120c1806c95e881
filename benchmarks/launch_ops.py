"""The ops whose calls benchmarks.launch times: they do next to nothing, so that the way to their kernels counts."""

import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def scale_kernel(x, out, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=inside) * factor, mask=inside)


@kp.op(
    "scale(Tensor x, float factor) -> Tensor",
    variants={"x": [tl.float32]},
    configs={"cpu": kp.Config({"BLOCK": 16}), "cuda": kp.Config({"BLOCK": 128}, num_warps=4)},
)
def scale(x, factor):
    """Returns x * factor. Checks: x is float32, on a device that it was built for, contiguous."""
    kp.check(x.is_contiguous(), "x must be contiguous")
    out = kp.empty_like(x)
    n = x.numel()
    scale_kernel[lambda meta: (kp.cdiv(n, meta["BLOCK"]),)](x, out, n, factor)
    return out


@kp.jit
def step_kernel(x, out, n, factor, BLOCK: tl.constexpr, STEP: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=inside) * factor + STEP, mask=inside)


@kp.op(
    "step(Tensor x, float factor, int step) -> Tensor",
    variants={"x": [tl.float32], "STEP": list(range(16))},
    configs={"cpu": kp.Config({"BLOCK": 16}), "cuda": kp.Config({"BLOCK": 128}, num_warps=4)},
    specialize=[],
)
def step(x, factor, step):
    """Many kernels, each of which can be used for the first time."""
    kp.check(x.is_contiguous(), "x must be contiguous")
    out = kp.empty_like(x)
    n = x.numel()
    step_kernel[lambda meta: (kp.cdiv(n, meta["BLOCK"]),)](x, out, n, factor, STEP=step)
    return out
