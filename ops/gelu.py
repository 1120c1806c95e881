"""gelu of every element, exact or by tanh, with the meaning of torch.nn.functional.gelu."""

import kernelpack as kp
import kernelpack.language as tl

from ._activations import Approximate, check_approximate, gelu_of
from ._rows import DTYPES, ROW_RANGES, RowStrides, check_rows, grid_of, own_rows, row_offset, rows_of

RANGES = ROW_RANGES


@kp.jit
def gelu_chunk(x, out, first, end, n, TANH: tl.constexpr, BLOCK: tl.constexpr, READ: tl.constexpr, WRITE: tl.constexpr):
    for begin in range(first, end, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        inside = offsets < n
        value = tl.load(x + offsets, mask=inside, eviction_policy=READ).to(tl.float32)
        tl.store(out + offsets, gelu_of(value, TANH, x.dtype.element_ty != tl.float32), mask=inside, cache_modifier=WRITE)


@kp.jit
def gelu_flat(x, out, n: tl.int64, TANH: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr, LARGE: tl.constexpr):
    """LARGE: how many elements a last-level cache does not hold; from there on results are written past caches. 0: that is left to the GPU."""
    first = tl.program_id(0).to(tl.int64) * CHUNK
    end = tl.minimum(first + CHUNK, n)
    if LARGE == 0:
        gelu_chunk(x, out, first, end, n, TANH, BLOCK, "", "")
    elif n < LARGE:
        gelu_chunk(x, out, first, end, n, TANH, BLOCK, "evict_first", "")
    else:
        gelu_chunk(x, out, first, end, n, TANH, BLOCK, "evict_first", ".cs")


@kp.jit
def gelu_rows(x, out, strides, rows, TANH: tl.constexpr, BLOCK: tl.constexpr):
    first, stop = own_rows(rows)
    for row in range(first, stop):
        source = x + row_offset(row, rows, strides)
        for begin in range(0, rows.columns, BLOCK):
            offsets = begin + tl.arange(0, BLOCK)
            inside = offsets < rows.columns
            value = tl.load(source + offsets, mask=inside).to(tl.float32)
            tl.store(out + row * rows.columns + offsets, gelu_of(value, TANH, x.dtype.element_ty != tl.float32), mask=inside)


def config(point):
    """Flat programs take a chunk: on a CPU block after block, so that little is computed in vain at the end."""
    if point.target.backend == "cpu":
        return kp.Config({"CHUNK": 2048, "BLOCK": 256, "LARGE": 2**23})
    return kp.Config({"CHUNK": 1024, "BLOCK": 1024, "LARGE": 0}, num_warps=4)


@kp.op("gelu(Tensor x, *, int approximate=0) -> Tensor", variants={"x": DTYPES, "TANH": [False, True]}, configs={"": config})
def gelu(x, approximate):
    """Returns gelu of x in its shape and dtype; `approximate` is an `Approximate`."""
    check_approximate(approximate)
    out = kp.empty_like(x)
    tanh = approximate == Approximate.TANH
    if x.is_contiguous():
        gelu_flat[lambda meta: (kp.cdiv(x.numel(), meta["CHUNK"]),)](x, out, x.numel(), TANH=tanh)
    else:
        check_rows(x, "x")
        sizes, strides = kp.collapse_rows(x, ndims=3)
        rows = rows_of(x, sizes)
        gelu_rows[grid_of(rows)](x, out, RowStrides(*strides), rows, TANH=tanh)
    return out


def reference(x, approximate=0):
    """The same with torch, in any float dtype."""
    import torch  # builds do without it

    return torch.nn.functional.gelu(x, approximate="tanh" if approximate else "none")
