"""silu(gate) * up of every element: the activation of gated feed-forward layers (SwiGLU)."""

import kernelpack as kp
import kernelpack.language as tl

from ._activations import silu
from ._rows import DTYPES, ROW_RANGES, RowStrides, check_rows, grid_of, own_rows, row_offset, rows_of

RANGES = ROW_RANGES


@kp.jit
def silu_mul_flat(gate, up, out, n: tl.int64, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * CHUNK
    for begin in range(first, tl.minimum(first + CHUNK, n), BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        inside = offsets < n
        activated = silu(tl.load(gate + offsets, mask=inside).to(tl.float32))
        tl.store(out + offsets, activated * tl.load(up + offsets, mask=inside).to(tl.float32), mask=inside)


@kp.jit
def silu_mul_rows(gate, up, out, gate_strides, up_strides, rows, BLOCK: tl.constexpr):
    first, stop = own_rows(rows)
    for row in range(first, stop):
        gate_row = gate + row_offset(row, rows, gate_strides)
        up_row = up + row_offset(row, rows, up_strides)
        for begin in range(0, rows.columns, BLOCK):
            offsets = begin + tl.arange(0, BLOCK)
            inside = offsets < rows.columns
            activated = silu(tl.load(gate_row + offsets, mask=inside).to(tl.float32))
            value = activated * tl.load(up_row + offsets, mask=inside).to(tl.float32)
            tl.store(out + row * rows.columns + offsets, value, mask=inside)


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
        sizes, gate_strides, up_strides = kp.collapse_rows(gate, up, ndims=3)
        rows = rows_of(gate, sizes)
        silu_mul_rows[grid_of(rows)](gate, up, out, RowStrides(*gate_strides), RowStrides(*up_strides), rows)
    return out


def reference(gate, up):
    """The same with torch, in any float dtype."""
    import torch  # builds do without it

    return torch.nn.functional.silu(gate) * up
