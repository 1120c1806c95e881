"""Elementary functions for amdgcn: LLVM's where they are accurate, polynomials elsewhere, halves through float32, no library."""

from __future__ import annotations

import pytest

from kernelpack.backends.amd.lowering import LOWERINGS
from kernelpack.backends.amd.lowering.math import ELEMENTS, SINGLE
from kernelpack.ir.dialect import definition
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.llir import GFX942, lower


def function(line: str, kind: str, result: str = "") -> str:
    return lower(f"%r = {line}\ntt.return %r : {result or kind}", f"%a: {kind}, %b: {kind}", target=GFX942)


@pytest.mark.parametrize("name", ["exp", "exp2", "log", "log2"])
def test_what_llvm_has_accurate_code_for_is_its_own(name: str) -> None:
    in_order(function(f"math.{name} %a : f32", "f32"), f"%R = call float @llvm.{name}.f32(float %a)\nreturn %R")


@pytest.mark.parametrize("name", ["erf", "log1p", "tanh"])
def test_the_others_are_polynomials_without_a_call_of_a_library(name: str) -> None:
    text = function(f"math.{name} %a : f32", "f32")
    called = [line.split("@")[1] for line in text.splitlines() if " call " in line]
    assert all(each.startswith("llvm.") for each in called)
    assert count(text, "%A = call float @llvm.fma.f32(...)") >= 4


@pytest.mark.parametrize(("kind", "llvm"), [("f16", "half"), ("bf16", "bfloat")])
@pytest.mark.parametrize("line", ["math.exp %a", "math.rsqrt %a", "arith.divf %a, %b", "math.tanh %a", "math.sqrt %a"])
def test_halves_go_through_float32(line: str, kind: str, llvm: str) -> None:
    in_order(function(f"{line} : {kind}", kind), f"%A = fpext {llvm} %a to float\n%R = fptrunc float %B to {llvm}\nreturn %R")


def test_divisions_and_roots_are_rounded_once() -> None:
    in_order(function("arith.divf %a, %b : f32", "f32"), "%R = fdiv float %a, %b\nreturn %R")
    in_order(
        function("math.rsqrt %a : f64", "f64"),
        "%S = call double @llvm.sqrt.f64(double %a)\n%R = fdiv double 0x3FF0000000000000, %S\nreturn %R",
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("f32", "f16", "%R = fptrunc float %a to half"),
        ("bf16", "f32", "%R = fpext bfloat %a to float"),
        ("f16", "bf16", "%A = fpext half %a to float\n%R = fptrunc float %A to bfloat"),
    ],
)
def test_floats_are_converted_to_the_nearest(before: str, after: str, expected: str) -> None:
    in_order(function(f"tt.fp_to_fp %a : {before} -> {after}", before, after), f"{expected}\nreturn %R")


def test_rows_are_operations_that_are_lowered() -> None:
    assert {definition(name).name for name in ELEMENTS} == set(ELEMENTS) <= set(LOWERINGS)
    assert set(ELEMENTS) > SINGLE == {f"math.{name}" for name in ("exp", "exp2", "log", "log2", "erf", "log1p", "tanh")}
