"""Elementary functions of float32, compiled by themselves: within the errors that docs/accuracy.md states, edges included."""

from __future__ import annotations

import re
from pathlib import Path

import mpmath
import numpy as np
import pytest

from kernelpack.backends.cpu.emit.elementwise import Lowering
from kernelpack.llvm.text import Emitter, Val
from kernelpack.llvm.vector_math import FUNCTIONS, VectorMath
from tests.backends.cpu.math.calls import Array, compiled, sample, ulps

PAGE = (Path(__file__).parents[2] / "docs" / "accuracy.md").read_text()
STATED = {name: float(ulp) for name, ulp in re.findall(r"^\| `([^`]+)` \| ([\d.]+) \|", PAGE, re.MULTILINE)}
NAMES = [name.removeprefix("math.") for name in FUNCTIONS]
ERF = np.vectorize(lambda x: float(mpmath.erf(x)), otypes=[np.float64])
REFERENCES = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "log1p": np.log1p, "tanh": np.tanh, "erf": ERF,
}  # fmt: skip


def results(name: str, x: Array, width: int = 8) -> Array:
    def emit(lo: Lowering, values: list[Val]) -> Val:
        return FUNCTIONS[f"math.{name}"](VectorMath(lo.em, values[0].type), values[0])

    return compiled(emit, ["float"], "float", width)(x)


@pytest.mark.parametrize("name", NAMES)
def test_errors_are_within_what_the_page_states(name: str) -> None:
    x = sample(1 << 12 if name == "erf" else 1 << 15)
    with np.errstate(all="ignore"):
        right = REFERENCES[name](x.astype(np.float64))
    error = ulps(results(name, x), right)
    assert error.max() <= STATED[name] + 0.005, x[error.argmax()]


@pytest.mark.parametrize("name", NAMES)
def test_scalars_and_vectors_give_the_same(name: str) -> None:
    x = sample(1 << 10)
    np.testing.assert_array_equal(results(name, x, 1), results(name, x, 8))


INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("exp", {0.0: 1.0, INF: INF, -INF: 0.0, 88.73: INF, -104.0: 0.0, -103.9: 1e-45, NAN: NAN}),
        ("exp2", {0.0: 1.0, INF: INF, -INF: 0.0, 127.0: 2.0**127, 128.0: INF, -149.0: 2.0**-149, -150.5: 0.0, NAN: NAN}),
        ("log", {1.0: 0.0, 0.0: -INF, -1.0: NAN, INF: INF, -INF: NAN, NAN: NAN}),
        ("log2", {1.0: 0.0, 8.0: 3.0, 0.0: -INF, -1.0: NAN, INF: INF, 2.0**-149: -149.0, NAN: NAN}),
        ("log1p", {0.0: 0.0, -1.0: -INF, -1.5: NAN, INF: INF, 1e-30: 1e-30, NAN: NAN}),
        ("tanh", {0.0: 0.0, INF: 1.0, -INF: -1.0, 20.0: 1.0, 1e-30: 1e-30, NAN: NAN}),
        ("erf", {0.0: 0.0, INF: 1.0, -INF: -1.0, 5.0: 1.0, 2.0**-140: 578 * 2.0**-149, NAN: NAN}),
    ],
)
def test_edges(name: str, values: dict[float, float]) -> None:
    x = np.zeros(8, np.float32)
    x[: len(values)] = list(values)
    got = results(name, x)[: len(values)]
    np.testing.assert_array_equal(got, np.array(list(values.values()), np.float32))


@pytest.mark.parametrize("name", ["log1p", "tanh", "erf"])
def test_odd_functions_keep_the_sign_of_zero(name: str) -> None:
    got = results(name, np.array([0.0, -0.0] * 4, np.float32))
    if name == "log1p":
        assert not np.signbit(got[0])
    else:
        np.testing.assert_array_equal(np.signbit(got), np.tile([False, True], 4))


def test_avx512_scales_by_its_instruction_where_it_computes_sixteen() -> None:
    em = Emitter(frozenset({"avx512"}))
    VectorMath(em, "<16 x float>").exp(Val("<16 x float>", "%x"))
    assert any("llvm.x86.avx512.mask.scalef.ps.512" in line for line in em.lines)
    for kind, features in (("<16 x float>", frozenset[str]()), ("<8 x float>", frozenset({"avx512"}))):
        em = Emitter(features)
        VectorMath(em, kind).exp(Val(kind, "%x"))
        assert not any("avx512" in line for line in em.lines)


def test_avx512_reduces_the_argument_of_exp2_by_its_instruction() -> None:
    em = Emitter(frozenset({"avx512"}))
    VectorMath(em, "<16 x float>").exp2(Val("<16 x float>", "%x"))
    text = "\n".join(em.lines)
    assert text.index("llvm.x86.avx512.mask.reduce.ps.512") < text.index("llvm.x86.avx512.mask.scalef.ps.512")
