"""Operations that make, reshape and multiply tiles, and reductions and scans by a given combining function."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kernelpack.ir.core import Operation
from kernelpack.ir.formats import Array, carrier, round_to
from kernelpack.ir.types import FloatType, Type, element_of, shape_of

Combine = Callable[[Sequence[Array], Sequence[Array]], list[Array]]
"""Combines two values of each operand, elementwise."""


def constant(value: bool | int | float, kind: Type) -> Array:
    """Returns a constant, in its normal form, as a value of a scalar or tensor type."""
    return np.broadcast_to(np.asarray(value, carrier(element_of(kind))), shape_of(kind))


def _make_range(op: Operation) -> Array:
    return np.arange(op.attributes["start"], op.attributes["end"], dtype=np.int32)


def _fill(op: Operation, values: Array) -> Array:
    return np.broadcast_to(values, shape_of(op.result.type))


def _join(op: Operation, a: Array, b: Array) -> Array:
    return np.stack([a, b], axis=-1)


def _dot(op: Operation, a: Array, b: Array, c: Array) -> Array:
    kind = element_of(op.result.type)
    if isinstance(kind, FloatType):
        return round_to(np.matmul(a.astype(np.float64), b.astype(np.float64)) + c, kind)
    product = np.matmul(a.astype(np.int64), b.astype(np.int64))
    out: Array = (product + c).astype(carrier(kind))
    return out


def _gather(op: Operation, source: Array, indices: Array) -> Array:
    axis = op.attributes["axis"]
    return np.take_along_axis(source, indices.astype(np.int64) % source.shape[axis], axis)


def _histogram(op: Operation, values: Array, mask: Array | None = None) -> Array:
    bins = shape_of(op.result.type)[0]
    places = values.view(np.dtype(f"uint{8 * values.dtype.itemsize}"))
    counted = places < bins
    counted = counted if mask is None else counted & mask
    return np.bincount(places[counted].astype(np.int64), minlength=bins).astype(np.int32)


TILES: dict[str, Callable[..., Array]] = {
    "arith.constant": lambda op: constant(op.attributes["value"], op.result.type),
    "tt.make_range": _make_range,
    "tt.splat": _fill,
    "tt.unsplat": lambda op, values: values.reshape(-1)[0],
    "tt.expand_dims": lambda op, values: np.expand_dims(values, op.attributes["axis"]),
    "tt.broadcast": _fill,
    "tt.reshape": lambda op, values: values.reshape(shape_of(op.result.type)),
    "tt.trans": lambda op, values: np.transpose(values, op.attributes["order"]),
    "tt.join": _join,
    "tt.gather": _gather,
    "tt.histogram": _histogram,
    "tt.cat": lambda op, a, b: np.concatenate([a, b]),
    "tt.dot": _dot,
}
"""Pure operations with one result that are not elementwise: name to a function of (operation, carrier values)."""


def split(values: Array) -> list[Array]:
    return [values[..., 0], values[..., 1]]


def reduce(operands: Sequence[Array], axis: int, combine: Combine) -> list[Array]:
    """Combines neighbours pairwise along an axis until one value is left."""
    rows = [np.moveaxis(values, axis, 0) for values in operands]
    while len(rows[0]) > 1:
        rows = combine([values[0::2] for values in rows], [values[1::2] for values in rows])
    return [values[0] for values in rows]


def scan(operands: Sequence[Array], axis: int, reverse: bool, combine: Combine) -> list[Array]:
    """Replaces each value by the combination of all values up to it along an axis (reverse: from it on, last first)."""
    rows = [np.moveaxis(values, axis, 0) for values in operands]
    if reverse:
        rows = [values[::-1] for values in rows]
    distance = 1
    while distance < len(rows[0]):
        combined = combine([values[:-distance] for values in rows], [values[distance:] for values in rows])
        rows = [np.concatenate([values[:distance], more]) for values, more in zip(rows, combined, strict=True)]
        distance *= 2
    if reverse:
        rows = [values[::-1] for values in rows]
    return [np.moveaxis(values, 0, axis) for values in rows]
