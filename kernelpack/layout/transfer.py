"""How layouts travel through operations that only rearrange a tile: from operand to result and back, without moving data."""

from __future__ import annotations

from collections.abc import Sequence

from kernelpack.ir.core import Operation
from kernelpack.ir.types import shape_of
from kernelpack.layout.families import HARDWARE, dim, dims, fit, without_copies
from kernelpack.layout.linear import Basis, LinearLayout

REARRANGING = frozenset({"tt.expand_dims", "tt.broadcast", "tt.reshape", "tt.trans", "tt.join", "tt.split", "tt.cat"})


def remove_dim(layout: LinearLayout, axis: int) -> LinearLayout:
    """Returns the layout of a tile reduced along `axis`: what held elements along it now holds copies."""
    rank = len(layout.shape)
    kept = layout.with_outs([dim(other) for other in range(rank) if other != axis])
    return without_copies(kept.rename_outs(dims(rank - 1)))


def insert_dim(layout: LinearLayout, axis: int) -> LinearLayout:
    """Returns the layout of the tile with a dimension of size 1 at `axis`."""

    def insert(basis: Basis) -> Basis:
        return (*basis[:axis], 0, *basis[axis:])

    shape = (*layout.shape[:axis], 1, *layout.shape[axis:])
    ins = tuple((name, tuple(map(insert, entries))) for name, entries in layout.ins)
    return LinearLayout(ins, tuple(zip(dims(len(shape)), shape, strict=True)))


def permute_dims(layout: LinearLayout, order: Sequence[int]) -> LinearLayout:
    """Returns the layout of a transposed tile: dimension i of the result is dimension order[i] of the operand."""
    return layout.with_outs([dim(axis) for axis in order]).rename_outs(dims(len(order)))


def reshape(layout: LinearLayout, shape: Sequence[int]) -> LinearLayout:
    return layout.reshape_outs(list(zip(dims(len(shape)), shape, strict=True)))


def _append_register(layout: LinearLayout, axis: int, lowest: bool) -> LinearLayout:
    """Doubles dimension `axis`; the new highest coordinate bit becomes a register bit, the lowest or the highest one."""
    size = layout.shape[axis]
    basis = tuple(size if other == axis else 0 for other in range(len(layout.shape)))
    outs = tuple((name, extent * 2 if at == axis else extent) for at, (name, extent) in enumerate(layout.outs))
    registers = layout.bases("register")
    grown = LinearLayout(layout.with_ins(HARDWARE).ins, outs)
    return grown.with_bases("register", (basis, *registers) if lowest else (*registers, basis))


def _remove_register(layout: LinearLayout, axis: int) -> LinearLayout | None:
    """Halves dimension `axis` where its highest bit is a register; None where a lane or warp holds it."""
    half = layout.shape[axis] // 2
    registers = [basis for basis in layout.bases("register") if not basis[axis] & half]
    if len(registers) == len(layout.bases("register")):
        return None
    outs = tuple((name, extent // 2 if at == axis else extent) for at, (name, extent) in enumerate(layout.outs))
    return LinearLayout(layout.with_bases("register", registers).ins, outs)


def result_layout(op: Operation, operand: LinearLayout) -> LinearLayout | None:
    """Returns the layout of a rearranging operation's result(s) that needs no data moved; None where there is none."""
    match op.name:
        case "tt.expand_dims":
            return insert_dim(operand, op.attributes["axis"])
        case "tt.broadcast":
            return fit(operand, shape_of(op.result.type))
        case "tt.reshape":
            return reshape(operand, shape_of(op.result.type))
        case "tt.trans":
            return permute_dims(operand, op.attributes["order"])
        case "tt.join":
            return _append_register(insert_dim(operand, len(operand.shape)), len(operand.shape), lowest=True)
        case "tt.cat":
            return _append_register(operand, 0, lowest=False)
        case "tt.split":
            halved = _remove_register(operand, len(operand.shape) - 1)
            return None if halved is None else remove_dim(halved, len(operand.shape) - 1)
    raise ValueError(f"{op.name} does not rearrange")


def operand_layout(op: Operation, result: LinearLayout) -> LinearLayout | None:
    """Returns the operand layout from which a rearranging operation gives `result` without moving data, or None."""
    match op.name:
        case "tt.expand_dims":
            return remove_dim(result, op.attributes["axis"])
        case "tt.broadcast":
            before = shape_of(op.operand.type)
            return fit(result, before)
        case "tt.reshape":
            return reshape(result, shape_of(op.operand.type))
        case "tt.trans":
            order = op.attributes["order"]
            return permute_dims(result, [order.index(axis) for axis in range(len(order))])
        case "tt.join":
            halved = _remove_register(result, len(result.shape) - 1)
            return None if halved is None else remove_dim(halved, len(result.shape) - 1)
        case "tt.cat":
            return _remove_register(result, 0)
        case "tt.split":
            return _append_register(insert_dim(result, len(result.shape)), len(result.shape), lowest=True)
    raise ValueError(f"{op.name} does not rearrange")
