"""Gated activations of rows that hold both halves, gates first: activation(x[:n]) * x[n:], as one projection of gates and values gives."""

import enum

import kernelpack as kp
import kernelpack.language as tl

from ._activations import gelu_of, silu
from ._roles import begin_early, early
from ._rows import RowStrides, check_rows, grid_of, own_rows, row_offset, rows_of


class Gate(enum.IntEnum):
    """What is applied to the gates."""

    SILU = 0
    GELU = 1
    GELU_TANH = 2


@kp.jit
def gate_block(source, target, begin, columns, GATE: tl.constexpr, BLOCK: tl.constexpr):
    """Takes a block of a row of `columns` gates and as many values."""
    offsets = begin + tl.arange(0, BLOCK)
    inside = offsets < columns
    gate = tl.load(source + offsets, mask=inside).to(tl.float32)
    value = tl.load(source + columns + offsets, mask=inside).to(tl.float32)
    activated = silu(gate) if GATE == 0 else gelu_of(gate, GATE == 2, source.dtype.element_ty != tl.float32)
    tl.store(target + offsets, activated * value, mask=inside)


@kp.jit
def gated_kernel(x, out, strides, rows, GATE: tl.constexpr, BLOCK: tl.constexpr, WALK: tl.constexpr):
    """Takes a program's rows block after block where it has to WALK, else one block of one row."""
    begin_early()
    if WALK:
        first, stop = own_rows(rows)
        for row in range(first, stop):
            source = x + row_offset(row, rows, strides)
            for begin in range(0, rows.columns, BLOCK):
                gate_block(source, out + row * rows.columns, begin, rows.columns, GATE, BLOCK)
    else:
        blocks = tl.cdiv(rows.columns, BLOCK)
        row = (tl.program_id(0) // blocks).to(tl.int64)
        source = x + row_offset(row, rows, strides)
        gate_block(source, out + row * rows.columns, tl.program_id(0) % blocks * BLOCK, rows.columns, GATE, BLOCK)


def config(point):
    if point.target.backend == "cpu":
        return kp.Config({"BLOCK": 256, "WALK": True})
    return kp.Config({"BLOCK": 1024, "WALK": False}, num_warps=4, launch_pdl=early(point))


def gated(x, gate):
    """A host function's body: returns what the op with this Gate does."""
    check_rows(x, "x")
    kp.check(
        x.shape[-1] % 2 == 0, f"the last dimension of x is {x.shape[-1]}, expected an even number: as many gates as values"
    )
    columns = x.shape[-1] // 2
    out = kp.empty_like(x, shape=(*x.shape[:-1], columns))
    sizes, strides = kp.collapse_rows(x, ndims=3)
    rows = rows_of(out, sizes)
    gated_kernel[lambda meta: (rows.count * kp.cdiv(columns, meta["BLOCK"]) if x.is_cuda else grid_of(rows)[0],)](
        x, out, RowStrides(*strides), rows, GATE=gate
    )
    return out
