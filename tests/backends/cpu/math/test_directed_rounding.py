"""Arithmetic that rounds down, up or toward zero: the neighbour on the exact result's side, computed with rational numbers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from kernelpack.backends.cpu.emit.elementwise import Lowering
from kernelpack.backends.cpu.math.directed_rounding import directed
from kernelpack.llvm.text import Val
from tests.backends.cpu.math.calls import Array, compiled

EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "fma": lambda x, y, z: x * y + z,
    "rcp": lambda x: 1 / x,
}
OPERANDS = {"add": 2, "sub": 2, "mul": 2, "div": 2, "fma": 3, "rcp": 1, "sqrt": 1}
KINDS = {"float": np.float32, "double": np.float64}


@functools.cache
def function(name: str, mode: str, kind: str) -> Callable[..., Array]:
    def emit(lo: Lowering, values: list[Val]) -> Val:
        return directed(lo.em, name, mode, values)

    return compiled(emit, [kind] * OPERANDS[name], kind)


def computed(name: str, mode: str, kind: str, operands: list[Array]) -> Array:
    return function(name, mode, kind)(*operands)


def less(a: float, exact: Fraction) -> bool:
    return a == -math.inf or (a < math.inf and Fraction(a) < exact)


def is_right(result: float, exact: Fraction, mode: str, kind: type[np.floating]) -> bool:
    """Whether a result is the neighbour of an exact one that `mode` asks for."""
    if exact == 0:
        return result == 0
    upward = mode == "ru" or (mode == "rz" and exact < 0)
    if not upward:
        result, exact = -result, -exact
    before = float(np.nextafter(kind(result), kind(-math.inf)))
    return not less(result, exact) and less(before, exact)


def numbers(kind: type[np.floating], count: int) -> list[Array]:
    """Three lists of numbers of one, or all, magnitudes."""
    rng = np.random.default_rng(7)
    wide = 120 if kind is np.float32 else 1000
    found = []
    for _ in range(3):
        x = rng.normal(size=count) * np.exp2(
            np.where(np.arange(count) % 2, rng.integers(-wide, wide, count), rng.integers(-3, 3, count))
        )
        found.append(x.astype(kind))
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["rd", "ru", "rz"])
@pytest.mark.parametrize("name", EXACT)
def test_results_are_the_neighbours_of_the_exact_ones(name: str, mode: str, kind: str) -> None:
    operands = numbers(KINDS[kind], 256)[: OPERANDS[name]]
    got = computed(name, mode, kind, operands)
    for values, result in zip(zip(*(x.tolist() for x in operands), strict=True), got.tolist(), strict=True):
        assert is_right(result, EXACT[name](*map(Fraction, values)), mode, KINDS[kind]), values


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["rd", "ru", "rz"])
def test_roots_are_the_neighbours_of_the_exact_ones(mode: str, kind: str) -> None:
    (x, *_) = numbers(KINDS[kind], 256)
    x, up = np.abs(x), mode == "ru"
    for value, result in zip(x, computed("sqrt", mode, kind, [x]), strict=True):
        below, above = (
            (np.nextafter(result, KINDS[kind](0)), result) if up else (result, np.nextafter(result, KINDS[kind](np.inf)))
        )
        squares = Fraction(float(below)) ** 2, Fraction(float(above)) ** 2
        exact = Fraction(float(value))
        assert (squares[0] < exact <= squares[1]) if up else (squares[0] <= exact < squares[1]), value


INF, NAN = math.inf, math.nan
BIG = float(np.finfo(np.float32).max)
LEAST = float(np.finfo(np.float32).smallest_subnormal)


@pytest.mark.parametrize(
    ("name", "operands", "down", "up", "zero"),
    [
        ("add", (BIG, BIG), BIG, INF, BIG),
        ("add", (-BIG, -BIG), -INF, -BIG, -BIG),
        ("add", (INF, 1.0), INF, INF, INF),
        ("add", (INF, -INF), NAN, NAN, NAN),
        ("mul", (LEAST, 0.5), 0.0, LEAST, 0.0),
        ("mul", (-LEAST, 0.5), -LEAST, -0.0, -0.0),
        ("mul", (BIG, 2.0), BIG, INF, BIG),
        ("div", (1.0, 0.0), INF, INF, INF),
        ("div", (1.0, INF), 0.0, 0.0, 0.0),
        ("div", (LEAST, BIG), 0.0, LEAST, 0.0),
        ("div", (NAN, 1.0), NAN, NAN, NAN),
        ("sub", (1.0, LEAST), 1.0 - 2.0**-24, 1.0, 1.0 - 2.0**-24),
        ("fma", (BIG, BIG, -INF), -INF, -INF, -INF),
        ("fma", (LEAST, LEAST, 1.0), 1.0, 1.0 + 2.0**-23, 1.0),
        ("fma", (LEAST, LEAST, 0.0), 0.0, LEAST, 0.0),
    ],
)
def test_edges(name: str, operands: tuple[float, ...], down: float, up: float, zero: float) -> None:
    given = [np.full(8, value, np.float32) for value in operands]
    got = [float(computed(name, mode, "float", given)[0]) for mode in ("rd", "ru", "rz")]
    np.testing.assert_array_equal(got, [down, up, zero])


def test_the_reciprocal_and_root_of_edges() -> None:
    x = np.array([0.0, INF, -INF, NAN, 4.0, LEAST, BIG, 1.0], np.float32)
    np.testing.assert_array_equal(
        computed("rcp", "rd", "float", [x])[:5], np.array([INF, 0.0, -LEAST * 0, NAN, 0.25], np.float32)
    )
    np.testing.assert_array_equal(computed("sqrt", "ru", "float", [x])[[0, 1, 4]], [0.0, INF, 2.0])
