"""Elementary functions: instructions of the hardware where they are accurate, libdevice elsewhere; halves through float32."""

from __future__ import annotations

import pytest

from kernelpack.options import Options
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.llir import lower


def function(line: str, kind: str, options: Options | None = None) -> str:
    arguments = ", ".join(f"%{name}: {kind}" for name in "abc")
    return lower(f"%r = {line} : {kind}\ntt.return %r : {kind}", arguments, options=options)


@pytest.mark.parametrize(
    ("line", "kind", "call"),
    [
        ("math.sin %a", "f32", "call float @__nv_sinf(float %a)"),
        ("math.sin %a", "f64", "call double @__nv_sin(double %a)"),
        ("math.log1p %a", "f32", "call float @__nv_log1pf(float %a)"),
        ("math.exp2 %a", "f64", "call double @__nv_exp2(double %a)"),
        ("math.exp2 %a", "f32", "call float @llvm.nvvm.ex2.approx.ftz.f(float %a)"),
        ("math.exp %a", "f64", "call double @__nv_exp(double %a)"),
        ("math.sqrt %a", "f32", "call float @llvm.sqrt.f32(float %a)"),
        ("tt.precise_sqrt %a", "f64", "call double @llvm.sqrt.f64(double %a)"),
        ("math.rsqrt %a", "f32", "call float @llvm.nvvm.rsqrt.approx.f(float %a)"),
        ("math.rsqrt %a", "f64", "call double @__nv_rsqrt(double %a)"),
        ("math.floor %a", "f16", "call half @llvm.floor.f16(half %a)"),
        ("math.fma %a, %b, %c", "f32", "call float @llvm.fma.f32(float %a, float %b, float %c)"),
        ("math.absf %a", "bf16", "call bfloat @llvm.fabs.bf16(bfloat %a)"),
        ("math.absf %a", "f8E5M2", "and i8 %a, 127"),
        ("math.absi %a", "i32", "call i32 @llvm.abs.i32(i32 %a, i1 false)"),
        ("arith.divf %a, %b", "f32", "call float @llvm.nvvm.div.full(float %a, float %b)"),
        ("arith.divf %a, %b", "f64", "fdiv double %a, %b"),
        ("arith.remf %a, %b", "f32", "call float @__nv_fmodf(float %a, float %b)"),
    ],
)
def test_one_instruction_or_call(line: str, kind: str, call: str) -> None:
    lines = function(line, kind).splitlines()
    assert len(lines) == 2
    assert lines[0].endswith(f"= {call}")


@pytest.mark.parametrize(("kind", "llvm"), [("f16", "half"), ("bf16", "bfloat")])
def test_halves_go_through_float32(kind: str, llvm: str) -> None:
    in_order(
        function("arith.divf %a, %b", kind),
        f"""
        %A = fpext {llvm} %a to float
        %B = fpext {llvm} %b to float
        %Q = call float @llvm.nvvm.div.full(float %A, float %B)
        %R = fptrunc float %Q to {llvm}
        return %R
        """,
    )


def test_exp_is_a_power_of_two_and_what_its_rounding_lost() -> None:
    in_order(
        function("math.exp %a", "f32"),
        """
        %X = call float @llvm.minimum.f32(float %a, float 0x40562E4300000000)
        %H = fmul float %X, 0x3FF7154760000000
        %L = call float @llvm.fma.f32(float %H, float 0xBFE62E4300000000, float %X)
        %M = call float @llvm.fma.f32(float %H, float 0x3E205C6100000000, float %L)
        %N = call float @llvm.minnum.f32(float %M, float 0x3FF0000000000000)
        %P = call float @llvm.nvvm.ex2.approx.ftz.f(float %H)
        %R = call float @llvm.fma.f32(float %P, float %N, float %P)
        return %R
        """,
    )


@pytest.mark.parametrize(("flush", "name"), [(True, "ex2.approx.ftz.f"), (False, "ex2.approx.f")])
def test_small_powers_become_zero_unless_the_option_is_off(flush: bool, name: str) -> None:
    text = function("math.exp %a", "f32", Options(num_warps=1, enable_reflect_ftz=flush))
    assert count(text, f"%A = call float @llvm.nvvm.{name}(float %B)") == 1
