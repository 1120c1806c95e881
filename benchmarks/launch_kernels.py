"""Kernels that do next to nothing, as their users write them: benchmarks.launch calls them by Triton and by kernelpack."""

import triton
import triton.language as tl


@triton.jit
def arguments_4(x, out, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=inside) * factor, mask=inside)


@triton.jit
def arguments_16(x, y, out, n, s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, factor, BLOCK: tl.constexpr):
    """Three tensors, sizes and strides: as many as a matrix product takes."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    total = tl.load(x + offsets * s0 + s4, mask=inside) + tl.load(y + offsets * s1 + s5, mask=inside)
    tl.store(out + offsets * s2, total * factor + (s3 * s6 + s7 * s8 + s9 * s10), mask=inside)
