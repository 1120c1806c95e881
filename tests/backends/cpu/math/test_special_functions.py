"""Inverses of the error function, erfcx and Bessel functions in float64, against mpmath with 40 digits."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest

from kernelpack.backends.cpu.emit.elementwise import Lowering
from kernelpack.backends.cpu.math.formula import Number
from kernelpack.backends.cpu.math.special_functions import bessel, erfcinv, erfcx, erfinv, normcdfinv
from kernelpack.llvm.text import Val
from tests.backends.cpu.math.calls import Array, compiled

Function = Callable[[Callable[[str, Number], Number], Number], Number]


def results(function: Function, x: Array) -> Array:
    """What a function gives; the C library's functions are called for each element."""

    def emit(lo: Lowering, values: list[Val]) -> Val:
        return function(
            lambda name, value: Number(lo.em, lo.em.call("double", name, [value.val])), Number(lo.em, values[0])
        ).val

    return compiled(emit, ["double"], "double", width=1)(x)


def right(function: Callable[[mpmath.mpf], mpmath.mpf], x: Array) -> Array:
    with mpmath.workdps(40):
        return np.array([float(function(mpmath.mpf(float(value)))) for value in x])


def _erfcinv(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.erfinv(1 - x)


CASES: dict[str, tuple[Function, Callable[[mpmath.mpf], mpmath.mpf], Array, float]] = {
    # the function, its reference, arguments, and the largest relative error
    "erfinv": (
        erfinv,
        mpmath.erfinv,
        np.array([-0.999, -0.5, -0.3, 1e-3, 1e-12, 0.1, 0.499999, 0.5, 0.7, 0.9, 0.999999]),
        4e-15,
    ),
    "erfcinv": (erfcinv, _erfcinv, np.array([1e-9, 1e-3, 0.1, 0.5, 0.9, 1.1, 1.5, 1.9, 1.999]), 4e-14),
    "normcdfinv": (
        normcdfinv,
        lambda p: mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1),
        np.array([1e-9, 0.01, 0.3, 0.7, 0.99]),
        4e-14,
    ),
    "erfcx": (
        erfcx,
        lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
        np.array([-3.0, -1.0, 0.0, 0.5, 1.0, 5.0, 20.0, 25.9, 26.1, 100.0, 1e4, 1e150]),
        4e-15,
    ),
    "bessel 0": (
        bessel(0),
        lambda x: mpmath.besseli(0, x),
        np.array([0.0, 1e-8, 0.5, 3.0, 19.9, 20.1, 50.0, 700.0, -3.0, -50.0]),
        4e-15,
    ),
    "bessel 1": (
        bessel(1),
        lambda x: mpmath.besseli(1, x),
        np.array([1e-8, 0.5, 3.0, 19.9, 20.1, 50.0, 700.0, -3.0, -50.0]),
        4e-15,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_relative_errors(name: str) -> None:
    function, reference, x, bound = CASES[name]
    expected = right(reference, x)
    error = np.abs(results(function, x) / expected - 1)
    assert error.max() <= bound, x[error.argmax()]


INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (erfinv, {0.0: 0.0, 1.0: INF, -1.0: -INF, 1.5: NAN, NAN: NAN}),
        (erfcinv, {0.0: INF, 2.0: -INF, 1.0: 0.0, 2.5: NAN, -0.5: NAN, NAN: NAN}),
        (normcdfinv, {0.0: -INF, 1.0: INF, 0.5: 0.0, 1.5: NAN}),
        (erfcx, {-30.0: INF, INF: 0.0, 0.0: 1.0, NAN: NAN}),
        (bessel(0), {0.0: 1.0, INF: INF, -INF: INF, NAN: NAN, 1e4: INF}),
        (bessel(1), {0.0: 0.0, INF: INF, -INF: -INF, NAN: NAN}),
    ],
)
def test_edges(function: Function, values: dict[float, float]) -> None:
    got = results(function, np.array(list(values)))
    np.testing.assert_allclose(got, np.array(list(values.values())), rtol=0, atol=1e-15)


def test_odd_functions_are_odd() -> None:
    x = np.array([0.1, 0.4, 0.6, 3.0])
    for function in (erfinv, bessel(1)):
        inside = x[:3] if function is erfinv else x
        np.testing.assert_array_equal(results(function, -inside), -results(function, inside))
