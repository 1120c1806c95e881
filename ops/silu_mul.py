"""silu(gate) * up of every element: the activation of gated feed-forward layers (SwiGLU)."""

import kernelpack as kp
import kernelpack.language as tl

from ._rows import DTYPES, ROW_RANGES, check_rows, row_offset, rows_per_program

RANGES = ROW_RANGES


@kp.jit
def silu(x):
    return x / (1.0 + tl.exp(-x))


@kp.jit
def silu_mul_flat(gate, up, out, n: tl.int64, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * CHUNK
    for begin in range(first, tl.minimum(first + CHUNK, n), BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        inside = offsets < n
        activated = silu(tl.load(gate + offsets, mask=inside).to(tl.float32))
        tl.store(out + offsets, activated * tl.load(up + offsets, mask=inside).to(tl.float32), mask=inside)


@kp.jit
def silu_mul_rows(
    gate,
    up,
    out,
    gate_stride0: tl.int64,
    gate_stride1: tl.int64,
    gate_stride2: tl.int64,
    up_stride0: tl.int64,
    up_stride1: tl.int64,
    up_stride2: tl.int64,
    size1: tl.int64,
    size2: tl.int64,
    rows: tl.int64,
    columns,
    row_count,
    BLOCK: tl.constexpr,
):
    first = tl.program_id(0).to(tl.int64) * row_count
    for row in range(first, tl.minimum(first + row_count, rows)):
        gate_row = gate + row_offset(row, size1, size2, gate_stride0, gate_stride1, gate_stride2)
        up_row = up + row_offset(row, size1, size2, up_stride0, up_stride1, up_stride2)
        for begin in range(0, columns, BLOCK):
            offsets = begin + tl.arange(0, BLOCK)
            inside = offsets < columns
            activated = silu(tl.load(gate_row + offsets, mask=inside).to(tl.float32))
            value = activated * tl.load(up_row + offsets, mask=inside).to(tl.float32)
            tl.store(out + row * columns + offsets, value, mask=inside)


def config(point):
    """Flat programs take a chunk: on a CPU block after block, so that little is computed in vain at the end."""
    if point.target.backend == "cpu":
        return kp.Config({"CHUNK": 2048, "BLOCK": 256})
    return kp.Config({"CHUNK": 1024, "BLOCK": 1024}, num_warps=4)


@kp.op("silu_mul(Tensor gate, Tensor up) -> Tensor", variants={"gate": DTYPES}, configs={"": config})
def silu_mul(gate, up):
    """Returns gate * sigmoid(gate) * up for two tensors of one shape and dtype."""
    kp.check(up.shape == gate.shape, f"up has shape {up.shape}, gate has {gate.shape}")
    out = kp.empty_like(gate)
    if gate.is_contiguous() and up.is_contiguous():
        silu_mul_flat[lambda meta: (kp.cdiv(gate.numel(), meta["CHUNK"]),)](gate, up, out, gate.numel())
    else:
        check_rows(gate, "gate")
        check_rows(up, "up")
        (size0, size1, size2), gate_strides, up_strides = kp.collapse_rows(gate, up, ndims=3)
        rows = size0 * size1 * size2
        row_count = rows_per_program(gate)
        grid = (kp.cdiv(rows, row_count),)
        silu_mul_rows[grid](gate, up, out, *gate_strides, *up_strides, size1, size2, rows, gate.shape[-1], row_count)
    return out


def reference(gate, up):
    """The same with torch, in any float dtype."""
    import torch  # builds do without it

    return torch.nn.functional.silu(gate) * up
