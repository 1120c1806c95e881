"""The kernel that main.c launches: y = factor x + y."""

import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def saxpy_kernel(x, y, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(y + offsets, factor * tl.load(x + offsets, mask=inside) + tl.load(y + offsets, mask=inside), mask=inside)


@kp.op(
    "saxpy(Tensor x, Tensor(a!) y, float factor) -> ()",
    variants={"x": [tl.float32]},
    configs={"cpu": kp.Config({"BLOCK": 4096}), "cuda": kp.Config({"BLOCK": 1024}, num_warps=4)},
)
def saxpy(x, y, factor):
    kp.check(x.is_contiguous() and y.is_contiguous(), "x and y must be contiguous")
    kp.check(x.numel() == y.numel(), f"x has {x.numel()} elements, y has {y.numel()}")
    n = x.numel()
    saxpy_kernel[lambda meta: (kp.cdiv(n, meta["BLOCK"]),)](x, y, factor, n)
