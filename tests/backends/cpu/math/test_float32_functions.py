"""Functions of float32 by formulas in float64: nearly all results are the nearest float32, edges as in C (C17, annex F)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from kernelpack.backends.cpu.emit.elementwise import Lowering
from kernelpack.backends.cpu.math.float32_functions import FUNCTIONS
from kernelpack.backends.cpu.math.formula import Number
from kernelpack.llvm.text import Val
from tests.backends.cpu.math.calls import Array, compiled, sample, ulps

MOST = 0.51
INF, NAN = np.inf, np.nan


def _exp10(x: Array) -> Array:
    return np.power(10.0, x)


def _rcbrt(x: Array) -> Array:
    return 1 / np.cbrt(x)


def _length(*sides: Array) -> Array:
    total = np.sqrt(sum(side * side for side in sides))
    return np.where(np.any([np.isinf(side) for side in sides], axis=0), INF, total)


def _inverse_length(*sides: Array) -> Array:
    return 1 / _length(*sides)


OF_ONE: dict[str, Callable[..., Array]] = {
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "exp10": _exp10,
    "expm1": np.expm1, "log10": np.log10, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "cbrt": np.cbrt, "rcbrt": _rcbrt,
}  # fmt: skip
OF_MORE: dict[str, tuple[int, Callable[..., Array]]] = {
    "pow": (2, np.power), "atan2": (2, np.arctan2), "hypot": (2, np.hypot), "rhypot": (2, _inverse_length), "norm3d": (3, _length),
    "rnorm3d": (3, _inverse_length), "norm4d": (4, _length), "rnorm4d": (4, _inverse_length),
}  # fmt: skip
OF_PI = ("sinpi", "cospi")


def results(name: str, *arguments: Array, width: int = 8) -> Array:
    def emit(lo: Lowering, values: list[Val]) -> Val:
        return FUNCTIONS[name](*(Number(lo.em, value) for value in values)).val

    return compiled(emit, ["float"] * len(arguments), "float", width)(*arguments)


def right(function: Callable[..., Array], *arguments: Array) -> Array:
    with np.errstate(all="ignore"):
        return function(*(argument.astype(np.float64) for argument in arguments))


def pairs(count: int) -> tuple[Array, ...]:
    """Numbers of all magnitudes, those of a usual one, integers as the last, and all combinations of edges for the first two."""
    rng = np.random.default_rng(1)
    edges = np.array([0.0, -0.0, 1, -1, INF, -INF, NAN, 2, -2, 0.5, -0.5, 3, -3, 1e-45, -1e-45, 3e38], np.float32)
    arguments = []
    for number in range(count):
        usual = rng.normal(size=1 << 14).astype(np.float32) * (30 if number else 1)
        whole = rng.integers(-30, 30, 1 << 13).astype(np.float32) if number else usual[: 1 << 13]
        repeated = np.repeat(edges, 16) if number == 0 else np.tile(edges, 16)
        arguments.append(np.concatenate([rng.permutation(sample()), usual, whole, repeated]))
    return tuple(arguments)


def test_all_functions_are_tested() -> None:
    assert set(FUNCTIONS) == {*OF_ONE, *OF_MORE, *OF_PI}


@pytest.mark.parametrize("name", OF_ONE)
def test_results_are_within_half_a_place(name: str) -> None:
    x = sample(1 << 15)
    error = ulps(results(name, x), right(OF_ONE[name], x))
    assert error.max() <= MOST, x[error.argmax()]


@pytest.mark.parametrize("name", OF_MORE)
def test_results_of_several_arguments_are_too(name: str) -> None:
    count, function = OF_MORE[name]
    arguments = pairs(count)
    got, expected = results(name, *arguments), right(function, *arguments)
    error = ulps(got, expected)
    assert error.max() <= MOST, [argument[error.argmax()] for argument in arguments]
    zero = expected == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(expected[zero]))


@pytest.mark.parametrize("name", [name for name in OF_ONE if name != "acosh"])
def test_zero_keeps_its_sign(name: str) -> None:
    x = np.array([0.0, -0.0] * 4, np.float32)
    got, expected = results(name, x), right(OF_ONE[name], x)
    np.testing.assert_array_equal(got, expected.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_one_large_angle_changes_no_other(name: str) -> None:
    small = np.arange(1, 9, dtype=np.float32)
    mixed = small.copy()
    mixed[3] = 1.5e38
    got = results(name, np.concatenate([small, mixed]))
    others = np.arange(8) != 3
    np.testing.assert_array_equal(got[8:][others], got[:8][others])
    assert ulps(got, right(OF_ONE[name], np.concatenate([small, mixed]))).max() <= MOST


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_of_every_size(name: str) -> None:
    """Near the limits at which other bits of 2/pi begin to matter, and the worst case below 2^128 (Muller, "Elementary Functions")."""
    limits = np.ldexp(np.float32(1), np.array([45, 46, 47, 66, 67, 68, 87, 88, 89, 108, 109, 110, 126, 127])).astype(np.float32)
    near = np.concatenate([limits, np.nextafter(limits, np.float32(0)), np.nextafter(limits, np.float32(INF))])
    x = np.concatenate([near, -near, np.full(4, 16367173 * 2.0**72, np.float32)])
    assert ulps(results(name, x), right(OF_ONE[name], x)).max() <= MOST


def test_angles_in_half_turns() -> None:
    x = np.array(
        [0.0, 0.5, 1.0, 1.5, -0.5, 1e6, 2.0**24 + 2, 3e38, 0.25, 1 / 3, 100.125, -7.375, 1e-30, -1e-45, INF, NAN], np.float32
    )
    with np.errstate(invalid="ignore"):
        turns = np.fmod(x.astype(np.float64), 2.0)
        for name, function in (("sinpi", np.sin), ("cospi", np.cos)):
            np.testing.assert_allclose(results(name, x), function(np.pi * turns), rtol=3e-7, atol=1e-15)
    np.testing.assert_array_equal(results("sinpi", x)[:8], [0, 1, 0, -1, -1, 0, 0, 0])


def test_a_length_with_an_infinite_side_is_infinite_even_beside_nan() -> None:
    x, y = (np.array(side * 2, np.float32) for side in ([INF, NAN, -INF, NAN], [NAN, INF, 1.0, 1.0]))
    np.testing.assert_array_equal(results("hypot", x, y), [INF, INF, INF, NAN] * 2)


@pytest.mark.parametrize("name", [*OF_ONE, *OF_MORE, *OF_PI])
def test_scalars_and_vectors_give_the_same(name: str) -> None:
    count = OF_MORE[name][0] if name in OF_MORE else 1
    arguments = [argument[: 1 << 10] for argument in pairs(count)]
    np.testing.assert_array_equal(results(name, *arguments, width=1), results(name, *arguments, width=16))


def test_powers_of_edges_are_those_of_c() -> None:
    for base, exponent in product([1.0, -1.0], [INF, -INF]):
        np.testing.assert_array_equal(
            results("pow", *(np.full(8, value, np.float32) for value in (base, exponent))), np.ones(8)
        )
    nan = np.full(8, NAN, np.float32)
    np.testing.assert_array_equal(results("pow", nan, np.zeros(8, np.float32)), np.ones(8))
    np.testing.assert_array_equal(results("pow", np.ones(8, np.float32), nan), np.ones(8))
    np.testing.assert_array_equal(results("pow", np.full(8, -2, np.float32), np.full(8, 0.5, np.float32)), nan)
