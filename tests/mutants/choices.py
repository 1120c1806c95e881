"""What the language leaves open, chosen otherwise than the interpreter does: results that change by it are undefined."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from unittest import mock

import numpy as np

from kernelpack.ir.core import Operation
from kernelpack.ir.formats import Array, round_to
from kernelpack.ir.interpret import machine, memory
from kernelpack.ir.interpret.elementwise import ELEMENTWISE
from kernelpack.ir.interpret.tiles import TILES, Combine
from kernelpack.ir.types import FloatType, Type, bit_width, element_of, is_float

_ELEMENTARY = ("cos", "erf", "exp", "exp2", "log", "log1p", "log2", "rsqrt", "sin", "tanh")

INEXACT = {f"math.{name}" for name in _ELEMENTARY} | {"tt.dot", "tt.reduce", "tt.scan", "arith.divf", "tt.extern_elementwise"}
"""Operations whose float results are rounded, or added in an order, that is left open."""


@contextlib.contextmanager
def other_choices(number: int) -> Iterator[None]:
    """Lets the interpreter choose otherwise inside: quotients by zero, shifts by the width or more, the sign of NaN's bits, the
    association of reductions, scans and products, the order of lanes that write one place, the last bits of elementary functions."""
    random = np.random.default_rng(number)
    elementwise = {
        **{name: _by_zero(ELEMENTWISE[name], random) for name in _DIVISIONS},
        **{name: _too_far(ELEMENTWISE[name], random) for name in _SHIFTS},
        **{name: _nearly(ELEMENTWISE[name], random) for name in [*(f"math.{name}" for name in _ELEMENTARY), "arith.divf"]},
        **{name: _other_nan(ELEMENTWISE[name]) for name in ("arith.bitcast", "tt.bitcast")},
    }
    with (
        mock.patch.dict(ELEMENTWISE, elementwise),
        mock.patch.dict(TILES, {"tt.dot": _dot}),
        mock.patch.object(machine, "reduce", functools.partial(_reduce, random)),
        mock.patch.object(machine, "scan", functools.partial(_scan, random)),
        mock.patch.object(memory, "_lanes", _in_any_order(memory._lanes, random)),
    ):
        yield


_DIVISIONS = ("arith.divsi", "arith.divui", "arith.remsi", "arith.remui")
_SHIFTS = ("arith.shli", "arith.shrsi", "arith.shrui")


def _by_zero(function: Callable[..., Array], random: np.random.Generator) -> Callable[..., Array]:
    def apply(op: Operation, a: Array, b: Array) -> Array:
        return _where(b == 0, function(op, a, b), random)

    return apply


def _too_far(function: Callable[..., Array], random: np.random.Generator) -> Callable[..., Array]:
    def apply(op: Operation, a: Array, b: Array) -> Array:
        width = bit_width(element_of(op.result.type))
        return _where((b < 0) | (np.asarray(b).astype(np.int64) >= width), function(op, a, b), random)

    return apply


def _where(open_: Array, values: Array, random: np.random.Generator) -> Array:
    """Returns values, with others where they are left open."""
    if not np.any(open_):
        return values
    others = (
        random.integers(0, 2, np.shape(values)).astype(values.dtype)
        if values.dtype == bool
        else (random.integers(-100, 100, np.shape(values)).astype(values.dtype))
    )
    return np.where(open_, others, values)


def _nearly(function: Callable[..., Array], random: np.random.Generator) -> Callable[..., Array]:
    def apply(op: Operation, *operands: Array) -> Array:
        values = function(op, *operands)
        kind = element_of(op.result.type)
        assert isinstance(kind, FloatType)
        exact = (values == 0) | (np.abs(values) == 1) | ~np.isfinite(values)
        steps = random.integers(-1, 2, np.shape(values)) * 2.0 ** -max(7, _mantissa(kind))
        return np.where(exact, values, round_to(values.astype(np.float64) * (1 + steps), kind)).astype(values.dtype)

    return apply


def _mantissa(kind: FloatType) -> int:
    return kind.mantissa


def _other_nan(function: Callable[..., Array]) -> Callable[..., Array]:
    def apply(op: Operation, values: Array) -> Array:
        bits = function(op, values)
        if is_float(element_of(op.operand.type)) and not is_float(element_of(op.result.type)):
            return np.where(np.isnan(values), bits ^ np.asarray(1, bits.dtype), bits)
        return bits

    return apply


Lanes = Callable[[Array, Array | None], tuple[Array, Array]]


def _in_any_order(lanes: Lanes, random: np.random.Generator) -> Lanes:
    """Which of the lanes that write one place is the last."""

    def apply(pointers: Array, mask: Array | None) -> tuple[Array, Array]:
        flat, active = lanes(pointers, mask)
        return flat, random.permutation(active)

    return apply


def _dot(op: Operation, a: Array, b: Array, c: Array) -> Array:
    kind: Type = element_of(op.result.type)
    if not isinstance(kind, FloatType):
        return TILES_DOT(op, a, b, c)
    wide = np.float64 if kind.name == "f64" else np.float32
    total = c.astype(wide)
    for k in range(a.shape[-1]):
        total = total + a[..., :, k, None].astype(wide) * b[..., None, k, :].astype(wide)
    return round_to(total, kind)


TILES_DOT = TILES["tt.dot"]


def _reduce(random: np.random.Generator, operands: Sequence[Array], axis: int, combine: Combine) -> list[Array]:
    """Combines in any order and association."""
    rows = [np.moveaxis(values, axis, 0) for values in operands]
    order = random.permutation(len(rows[0]))
    return [values[0] for values in _folded([values[order] for values in rows], combine, random)]


def _scan(random: np.random.Generator, operands: Sequence[Array], axis: int, reverse: bool, combine: Combine) -> list[Array]:
    """Combines in order, in any association."""
    rows = [np.moveaxis(values, axis, 0) for values in operands]
    if reverse:
        rows = [values[::-1] for values in rows]
    prefixes = [_folded([values[: end + 1] for values in rows], combine, random) for end in range(len(rows[0]))]
    rows = [np.concatenate(parts) for parts in zip(*prefixes, strict=True)]
    if reverse:
        rows = [values[::-1] for values in rows]
    return [np.moveaxis(values, 0, axis) for values in rows]


def _folded(rows: Sequence[Array], combine: Combine, random: np.random.Generator) -> list[Array]:
    """Combines the first axis of tiles to one element: from the left, from the right, or in groups that chance takes."""
    style = random.choice(("left", "right", "groups"))

    def folded(first: int, end: int) -> list[Array]:
        if end - first == 1:
            return [values[first:end] for values in rows]
        middle = {"left": end - 1, "right": first + 1}.get(style, int(random.integers(first + 1, end)))
        return combine(folded(first, middle), folded(middle, end))

    return folded(0, len(rows[0]))
