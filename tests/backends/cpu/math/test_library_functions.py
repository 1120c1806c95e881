"""What functions of libdevice become on a CPU: operations, intrinsics, calls of the C library for each element, or formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernelpack.backends.cpu.emit.elementwise import Lowering
from kernelpack.backends.cpu.math.library_functions import calls_library, is_formula, lower, refusal
from kernelpack.ir.libdevice import SYMBOLS
from kernelpack.llvm.text import Val, vector_type
from tests.backends.cpu.emit.llir import lowering, written
from tests.backends.cpu.math.calls import Array, compiled
from tests.backends.fragments import count, in_order

LLVM = {"fp32": "float", "fp64": "double", "i32": "i32", "u32": "i32", "i64": "i64", "u64": "i64"}


def text(symbol: str, width: int = 1) -> str:
    """The lines of a call of a function on %a, %b, ..."""
    lo = lowering()
    kinds = [vector_type(LLVM[kind], width) for kind in SYMBOLS[symbol].arguments]
    result = lower(lo, symbol, [Val(kind, f"%{name}") for kind, name in zip(kinds, "abcd", strict=False)])
    assert result.type == vector_type(LLVM[SYMBOLS[symbol].result], width)
    return written(lo.em)


@pytest.mark.parametrize(
    ("symbol", "line"),
    [
        ("__nv_ceilf", "call float @llvm.ceil.f32(float %a)"),
        ("__nv_truncf", "call float @llvm.trunc.f32(float %a)"),
        ("__nv_rint", "call double @llvm.rint.f64(double %a)"),
        ("__nv_fast_fdividef", "fdiv float %a, %b"),
        ("__nv_tgammaf", "call float @tgammaf(float %a)"),
        ("__nv_pow", "call double @pow(double %a, double %b)"),
        ("__nv_nextafterf", "call float @nextafterf(float %a, float %b)"),
        ("__nv_brev", "call i32 @llvm.bitreverse.i32(i32 %a)"),
        ("__nv_int_as_float", "bitcast i32 %a to float"),
        ("__nv_ldexpf", "call float @ldexpf(float %a, i32 %b)"),
        ("__nv_ilogbf", "call i32 @ilogbf(float %a)"),
    ],
)
def test_one_instruction_or_call(symbol: str, line: str) -> None:
    assert text(symbol).strip() == f"%v1 = {line}"


def test_a_vector_calls_the_c_library_for_each_element() -> None:
    lines = text("__nv_fmodf", width=4)
    assert count(lines, "%A = call float @fmodf(float %B, float %C)") == 4
    in_order(
        lines,
        """
        %A = extractelement <4 x float> %a, i64 0
        %B = extractelement <4 x float> %b, i64 0
        %C = call float @fmodf(float %A, float %B)
        %D = insertelement <4 x float> poison, float %C, i64 0
        """,
    )


def test_vectors_of_functions_that_are_operations_stay_vectors() -> None:
    assert "@expf" not in text("__nv_expf", width=8)
    assert "llvm.fma.v8f32" in text("__nv_expf", width=8)


@pytest.mark.parametrize("symbol", ["__nv_powf", "__nv_fast_powf", "__nv_tanf", "__nv_sinpif", "__nv_norm3df"])
def test_vectors_of_formulas_stay_vectors(symbol: str) -> None:
    assert is_formula(symbol)
    assert not calls_library(symbol)
    assert count(text(symbol, width=8), "%A = call float @") == 0


def test_which_functions_call_the_c_library() -> None:
    calling = ("__nv_pow", "__nv_tgammaf", "__nv_normcdff", "__nv_sinpi", "__nv_erfinvf")
    assert [symbol for symbol in calling if not calls_library(symbol) or is_formula(symbol)] == []
    assert [symbol for symbol in ("__nv_fabsf", "__nv_expf", "__nv_clz") if calls_library(symbol)] == []


def test_every_function_has_a_lowering() -> None:
    assert [symbol for symbol in SYMBOLS if not text(symbol)] == []


def test_a_function_that_libdevice_does_not_have_is_refused_by_name() -> None:
    assert refusal("__nv_expf") is None
    assert refusal("__nv_none") == "CPUs have no function __nv_none"


def results(symbol: str, *values: Array) -> Array:
    variant = SYMBOLS[symbol]

    def emit(lo: Lowering, given: list[Val]) -> Val:
        return lower(lo, symbol, given)

    kinds = [LLVM[kind] for kind in variant.arguments]
    return compiled(emit, kinds, LLVM[variant.result], width=4)(*values)


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("symbol", "arguments", "expected"),
    [
        ("__nv_abs", ([-5, 5, -(1 << 31), 0],), [5, 5, -(1 << 31), 0]),
        ("__nv_isnanf", ([NAN, 1.0, INF, -NAN],), [1, 0, 0, 1]),
        ("__nv_isinff", ([NAN, 1.0, INF, -INF],), [0, 0, 1, 1]),
        ("__nv_finitef", ([NAN, 1.0, INF, -INF],), [0, 1, 0, 0]),
        ("__nv_signbitf", ([-0.0, 1.0, -INF, 0.0],), [1, 0, 1, 0]),
        ("__nv_clz", ([0, 1, -1, 256],), [32, 31, 0, 23]),
        ("__nv_popc", ([0, 1, -1, 255],), [0, 1, 32, 8]),
        ("__nv_ffs", ([0, 1, 8, -(1 << 31)],), [0, 1, 4, 32]),
        ("__nv_mulhi", ([1 << 30, -(1 << 30), -1, 3], [4, 4, 1, 5]), [1, -1, -1, 0]),
        ("__nv_umulhi", ([-1, 1 << 31, 2, 3], [-1, 2, 3, 4]), [-2, 1, 0, 0]),
        ("__nv_mul24", ([1 << 23, 3, -1, 1 << 24], [2, 5, 7, 9]), [-(1 << 24), 15, -7, 0]),
        ("__nv_hadd", ([5, -5, 1 << 30, 7], [2, 2, 1 << 30, 8]), [3, -2, 1 << 30, 7]),
        ("__nv_rhadd", ([5, -5, 1 << 30, 7], [2, 2, 1 << 30, 8]), [4, -1, 1 << 30, 8]),
        ("__nv_sad", ([5, -5, 1, 0], [2, 5, 4, 0], [10, 0, 0, 1]), [13, 10, 3, 1]),
        ("__nv_byte_perm", ([0x03020100] * 4, [0x07060504] * 4, [0x3210, 0x7654, 0x0000, 0x4]), [0x03020100, 0x07060504, 0, 4]),
        ("__nv_saturatef", ([-1.0, 0.25, 2.0, NAN],), [0.0, 0.25, 1.0, 0.0]),
        ("__nv_double2hiint", ([1.0, -2.0, 0.5, 0.0],), [0x3FF00000, -(1 << 30), 0x3FE00000, 0]),
        ("__nv_hiloint2double", ([0x3FF00000, -(1 << 30), 0, 0], [0, 0, 1, 0]), [1.0, -2.0, 5e-324, 0.0]),
        ("__nv_norm3df", ([3.0, 1.0, 0.0, INF], [4.0, 2.0, 0.0, 1.0], [12.0, 2.0, 0.0, 1.0]), [13.0, 3.0, 0.0, INF]),
        ("__nv_rhypotf", ([3.0, 0.0, 6.0, 0.0], [4.0, 2.0, 8.0, 0.0]), [0.2, 0.5, 0.1, INF]),
        ("__nv_sinpif", ([0.5, 1.0, 1e6, -0.5],), [1.0, 0.0, 0.0, -1.0]),
        ("__nv_cospif", ([0.0, 1.0, 1e6, 2.0**30],), [1.0, -1.0, 1.0, 1.0]),
        ("__nv_normcdff", ([0.0, INF, -INF, 1.0],), [0.5, 1.0, 0.0, 0.8413447]),
        ("__nv_float2int_rn", ([2.5, -2.5, NAN, INF],), [2, -2, 0, (1 << 31) - 1]),
        ("__nv_float2int_ru", ([2.5, -2.5, 0.1, -INF],), [3, -2, 1, -(1 << 31)]),
        ("__nv_float2uint_rz", ([2.9, -1.0, NAN, INF],), [2, 0, 0, -1]),
        ("__nv_int2float_rz", ([(1 << 24) + 1, -(1 << 24) - 1, 3, 0],), [1 << 24, -(1 << 24), 3.0, 0.0]),
        ("__nv_double2float_ru", ([1 + 2.0**-30, 1e300, -1e300, 0.5],), [1 + 2.0**-23, INF, -3.4028235e38, 0.5]),
        ("__nv_fadd_rd", ([1.0, 3e38, -3e38, 1.0], [2.0**-30, 3e38, -3e38, 1.0]), [1.0, 3.4028235e38, -INF, 2.0]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_values(symbol: str, arguments: tuple[list[float], ...], expected: list[float]) -> None:
    variant = SYMBOLS[symbol]
    dtypes = {"fp32": np.float32, "fp64": np.float64, "i32": np.int32, "u32": np.int32, "i64": np.int64, "u64": np.int64}
    given = [np.array(values).astype(dtypes[kind]) for values, kind in zip(arguments, variant.arguments, strict=True)]
    got = results(symbol, *given)
    np.testing.assert_allclose(got, np.array(expected, dtypes[variant.result]), rtol=1e-6, atol=1e-6 if "pif" in symbol else 0)


def test_the_rough_reciprocal_reads_and_gives_upper_halves() -> None:
    (symbol,) = (symbol for symbol in SYMBOLS if "rcp64h" in symbol)
    got = results(symbol, np.array([3.0, 1e-310, 0.5, -2.0]))
    assert (got.view(np.int64) & 0xFFFFFFFF == 0).all()
    np.testing.assert_allclose(got, [1 / 3, np.inf, 2.0, -0.5], rtol=1e-6)
