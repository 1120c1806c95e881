"""Conversions between 8-bit floats and float32: every code, and every float32 beside the middle of two codes."""

from __future__ import annotations

import numpy as np
import pytest

from kernelpack.backends.cpu.math.fp8 import decode, encode
from kernelpack.ir.formats import decode as right_value
from kernelpack.ir.formats import encode as right_code
from kernelpack.ir.formats import max_finite, nan_bits, round_to
from kernelpack.ir.types import F8E4M3B15, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, FloatType
from tests.backends.cpu.math.calls import Array, compiled

KINDS = [F8E4M3FN, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ, F8E4M3B15]
CODES = np.arange(256).astype(np.uint8)


def decoded(kind: FloatType, codes: Array) -> Array:
    return compiled(lambda lo, values: decode(lo.em, values[0], kind), ["i8"], "float")(codes.view(np.int8))


def encoded(kind: FloatType, x: Array) -> Array:
    padded = np.resize(x.astype(np.float32), -(-len(x) // 8) * 8)
    codes = compiled(lambda lo, values: encode(lo.em, values[0], kind), ["float"], "i8")(padded)
    return codes.view(np.uint8)[: len(x)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_code_has_its_value(kind: FloatType) -> None:
    got, right = decoded(kind, CODES), right_value(CODES, kind).astype(np.float32)
    np.testing.assert_array_equal(got, right)
    finite = ~np.isnan(right)
    np.testing.assert_array_equal(np.signbit(got[finite]), np.signbit(right[finite]))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_value_has_its_code(kind: FloatType) -> None:
    values = right_value(CODES, kind).astype(np.float32)
    known = np.isfinite(values)
    np.testing.assert_array_equal(encoded(kind, values)[known], CODES[known])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_values_between_two_codes_round_to_the_nearer_one_and_halves_to_the_even_one(kind: FloatType) -> None:
    values = np.unique(right_value(CODES, kind).astype(np.float64))
    values = values[np.isfinite(values)]
    middle = ((values[:-1] + values[1:]) / 2).astype(np.float32)
    x = np.concatenate([middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))])
    right = right_code(round_to(x, kind), kind)
    np.testing.assert_array_equal(encoded(kind, x), np.asarray(right, np.uint8))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_is_too_large_becomes_the_largest_and_nan_stays_nan(kind: FloatType) -> None:
    largest = max_finite(kind)
    x = np.array([largest * 2, -largest * 2, np.inf, -np.inf, 3e38, np.nan, 1e-45, 0.0], np.float32)
    back = right_value(encoded(kind, x), kind)
    np.testing.assert_array_equal(back, [largest, -largest, largest, -largest, largest, np.nan, 0.0, 0.0])
    assert encoded(kind, x)[5] & 0x7F == nan_bits(kind) & 0x7F


def test_formats_without_minus_zero_have_one_zero() -> None:
    for kind in (F8E4M3FNUZ, F8E5M2FNUZ):
        assert not encoded(kind, np.array([-0.0, -1e-45], np.float32)).any()
    assert encoded(F8E5M2, np.array([-0.0], np.float32))[0] == 0x80
