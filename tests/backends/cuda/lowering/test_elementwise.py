"""Elementwise operations of NVIDIA's GPUs: roundings to zero, and divisions that share a reciprocal."""

from __future__ import annotations

import pytest

from kernelpack.layout.families import Threads, spread
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.llir import lower

L = {"L": spread((128,), 4, (0,), Threads(1, 32))}


@pytest.mark.parametrize(
    ("line", "kind", "expected"),
    [
        ("tt.fp_to_fp %a, rounding = rtz : f32 -> bf16", "f32", "call bfloat @llvm.nvvm.f2bf16.rz(float %a)"),
        ("tt.fp_to_fp %a, rounding = rtz : f32 -> f16", "f32", 'call i16 asm "cvt.rz.f16.f32 $0, $1;", "=h,f"(float %a)'),
        ("tt.fp_to_fp %a, rounding = rtz : f64 -> f32", "f64", "call float @llvm.nvvm.d2f.rz(double %a)"),
        ("tt.fp_to_fp %a : f16 -> bf16", "f16", "fpext half %a to float"),
    ],
)
def test_roundings(line: str, kind: str, expected: str) -> None:
    assert (
        lower(f"%r = {line}\ntt.return %r : {line.rpartition(' -> ')[2]}", f"%a: {kind}")
        .splitlines()[0]
        .endswith(f"= {expected}")
    )


@pytest.mark.parametrize(
    ("line", "kind", "expected"),
    [
        (
            "arith.fptosi %a : f32 to i8",
            "f32",
            '%N = call i32 asm "cvt.rzi.s8.f32 $0, $1;", "=r,f"(float %a)\n... = trunc i32 %N to i8',
        ),
        (
            "arith.fptoui %a : bf16 to i16",
            "bf16",
            '%F = fpext bfloat %a to float\n%N = call i32 asm "cvt.rzi.u16.f32 $0, $1;", "=r,f"(float %F)',
        ),
        ("arith.fptosi %a : f64 to i8", "f64", "... = call i8 @llvm.fptosi.sat.i8.f64(double %a)"),
        ("arith.fptosi %a : f32 to i32", "f32", "... = call i32 @llvm.fptosi.sat.i32.f32(float %a)"),
    ],
)
def test_conversions_to_few_bits_are_one_instruction(line: str, kind: str, expected: str) -> None:
    in_order(lower(f"%r = {line}\ntt.return %r : {line.rpartition(' to ')[2]}", f"%a: {kind}"), expected)


WIDE = {"L": spread((512,), 16, (0,), Threads(1, 32))}


def test_what_many_are_divided_by_has_one_reciprocal() -> None:
    text = lower(
        """
        %b = tt.splat %y : f32 -> tensor<512xf32, $L>
        %r = arith.divf %x, %b : tensor<512xf32, $L>
        tt.return %r : tensor<512xf32, $L>
        """,
        "%x: tensor<512xf32, $L>, %y: f32",
        WIDE,
    )
    assert count(text, "%A = call float @llvm.nvvm.rcp.approx.ftz.f(...)") == 1
    in_order(
        text,
        """
        %A = call float @llvm.fabs.f32(float %y)
        %S = select i1 ..., float ..., float ...
        %P = fmul float %y, %T
        %R = call float @llvm.nvvm.rcp.approx.ftz.f(float %P)
        %B = fmul float %x0, %T
        %C = fmul float %B, %R
        """,
    )
    assert not count(text, "%A = call float @llvm.nvvm.div.full(...)")


def test_few_numbers_are_divided_one_by_one() -> None:
    text = lower(
        "%b = tt.splat %y : f32 -> tensor<128xf32, $L>\n%r = arith.divf %x, %b : tensor<128xf32, $L>\ntt.return %r : tensor<128xf32, $L>",
        "%x: tensor<128xf32, $L>, %y: f32",
        L,
    )
    shared = count(text, "%A = call float @llvm.nvvm.rcp.approx.ftz.f(...)")
    each = lower(
        "%r = arith.divf %x, %y : tensor<128xf32, $L>\ntt.return %r : tensor<128xf32, $L>",
        "%x: tensor<128xf32, $L>, %y: tensor<128xf32, $L>",
        L,
    )
    assert shared == 1
    assert count(each, "%A = call float @llvm.nvvm.div.full(...)") == 4
