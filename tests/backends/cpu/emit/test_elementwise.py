"""Elementwise operations: one LLVM instruction each where there is one; floats of 8 and 16 bits through float32; no trap."""

from __future__ import annotations

import pytest

from kernelpack.backends.cpu.emit.elements import register_type
from kernelpack.backends.cpu.emit.elementwise import is_elementwise, is_small
from kernelpack.ir.core import Operation
from kernelpack.ir.types import BF16, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F16, F32, F64, I32, FloatType, Type, element_of
from kernelpack.llvm.text import Val
from tests.backends.cpu.emit.llir import lowering, written
from tests.backends.fragments import count, in_order
from tests.ir.examples import function, parse


def operation(line: str, *kinds: str) -> Operation:
    """An operation on %a, %b, %c of these types."""
    arguments = ", ".join(f"%{name}: {kind}" for name, kind in zip("abc", kinds, strict=False))
    *_, op, _ = parse(function(f"%r = {line}", arguments)).body.operations[0].body.operations
    return op


def lower(
    line: str, *kinds: str, width: int = 1, constants: tuple[int, ...] = (), fuse: bool = True, bf16: bool = False
) -> str:
    """The lines of an operation on %a, %b, %c; those of `constants` are the number 7."""
    op = operation(line, *kinds)
    values = []
    for number, kind in enumerate(value.type for value in op.operands):
        llvm = register_type(element_of(kind), width)
        name = f"%{'abc'[number]}" if number not in constants else "7" if width == 1 else "splat (i32 7)"
        values.append(Val(llvm, name))
    lo = lowering(fuse=fuse, bf16=bf16)
    result = lo.lower(op, values)
    assert result.type == register_type(element_of(op.result.type), width)
    return written(lo.em)


@pytest.mark.parametrize(
    ("line", "kinds", "expected"),
    [
        ("arith.addi %a, %b : i32", "i32 i32", "add i32 %a, %b"),
        ("arith.addf %a, %b : f32", "f32 f32", "fadd contract float %a, %b"),
        ("arith.divf %a, %b : f32", "f32 f32", "fdiv float %a, %b"),
        ("arith.negf %a : f64", "f64", "fneg double %a"),
        ("arith.maxsi %a, %b : i16", "i16 i16", "call i16 @llvm.smax.i16(i16 %a, i16 %b)"),
        ("arith.maximumf %a, %b : f32", "f32 f32", "call float @llvm.maximum.f32(float %a, float %b)"),
        ("arith.maxnumf %a, %b : f32", "f32 f32", "call float @llvm.maxnum.f32(float %a, float %b)"),
        ("arith.cmpi ult, %a, %b : i32", "i32 i32", "icmp ult i32 %a, %b"),
        ("arith.cmpf une, %a, %b : f32", "f32 f32", "fcmp une float %a, %b"),
        ("arith.select %a, %b, %c : f32", "i1 f32 f32", "select i1 %a, float %b, float %c"),
        ("arith.extsi %a : i8 to i32", "i8", "sext i8 %a to i32"),
        ("arith.trunci %a : i64 to i32", "i64", "trunc i64 %a to i32"),
        ("arith.sitofp %a : i32 to f32", "i32", "sitofp i32 %a to float"),
        ("arith.fptosi %a : f32 to i32", "f32", "call i32 @llvm.fptosi.sat.i32.f32(float %a)"),
        ("arith.fptoui %a : f32 to i32", "f32", "call i32 @llvm.fptoui.sat.i32.f32(float %a)"),
        ("arith.bitcast %a : f32 to i32", "f32", "bitcast float %a to i32"),
        ("math.sqrt %a : f32", "f32", "call float @llvm.sqrt.f32(float %a)"),
        ("math.absi %a : i32", "i32", "call i32 @llvm.abs.i32(i32 %a, i1 false)"),
        ("math.fma %a, %b, %c : f32", "f32 f32 f32", "call float @llvm.fma.f32(float %a, float %b, float %c)"),
        ("arith.remf %a, %b : f32", "f32 f32", "frem float %a, %b"),
    ],
)
def test_one_instruction(line: str, kinds: str, expected: str) -> None:
    assert lower(line, *kinds.split()).strip() == f"%v1 = {expected}"


@pytest.mark.parametrize("line", ["arith.fptosi %a : f32 to i8", "arith.fptoui %a : f32 to i16"])
def test_fewer_than_32_bits_are_taken_from_32(line: str) -> None:
    """LLVM converts to fewer bits, with limits, lane by lane."""
    lines = lower(line, "f32", width=8).splitlines()
    assert sum("fptosi <8 x float>" in one and one.endswith("to <8 x i32>") for one in lines) == 1
    assert lines[-1].split(" = ")[1].startswith("trunc <8 x i32>")


def test_vectors_are_lowered_as_scalars_are() -> None:
    assert lower("arith.addf %a, %b : f32", "f32", "f32", width=8).strip() == "%v1 = fadd contract <8 x float> %a, %b"
    assert (
        lower("arith.fptosi %a : f32 to i32", "f32", width=4).strip()
        == "%v1 = call <4 x i32> @llvm.fptosi.sat.v4i32.v4f32(<4 x float> %a)"
    )


def test_nothing_fuses_where_the_option_forbids_it() -> None:
    assert lower("arith.mulf %a, %b : f32", "f32", "f32", fuse=False).strip() == "%v1 = fmul float %a, %b"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "arith.divsi %a, %b : i32",
            """
            %Z = icmp eq i32 %b, 0
            %M = icmp eq i32 %b, -1
            %U = or i1 %Z, %M
            %D = select i1 %U, i32 1, i32 %b
            %Q = sdiv i32 %a, %D
            %N = sub i32 0, %a
            %E = icmp eq i32 %b, -1
            %S = select i1 %E, i32 %N, i32 %Q
            ... = select i1 %Z, i32 0, i32 %S
            """,
        ),
        (
            "arith.remsi %a, %b : i32",
            """
            %Z = icmp eq i32 %b, 0
            %R = srem i32 %a, %D
            %S = select i1 %E, i32 0, i32 %R
            ... = select i1 %Z, i32 %a, i32 %S
            """,
        ),
        (
            "arith.divui %a, %b : i32",
            """
            %Z = icmp eq i32 %b, 0
            %D = select i1 %Z, i32 1, i32 %b
            %Q = udiv i32 %a, %D
            ... = select i1 %Z, i32 0, i32 %Q
            """,
        ),
    ],
)
def test_divisions_never_trap(line: str, expected: str) -> None:
    in_order(lower(line, "i32", "i32"), expected)


def test_a_constant_divisor_needs_no_care() -> None:
    assert lower("arith.divsi %a, %b : i32", "i32", "i32", constants=(1,)).strip() == "%v1 = sdiv i32 %a, 7"


def test_vectors_of_up_to_32_bits_are_divided_through_float64() -> None:
    in_order(
        lower("arith.remui %a, %b : i32", "i32", "i32", width=4),
        """
        %X = uitofp <4 x i32> %a to <4 x double>
        %Y = uitofp <4 x i32> %D to <4 x double>
        %F = fdiv <4 x double> %X, %Y
        %Q = fptoui <4 x double> %F to <4 x i32>
        %P = mul <4 x i32> %Q, %D
        %R = sub <4 x i32> %a, %P
        """,
    )
    assert "udiv" in lower("arith.divui %a, %b : i64", "i64", "i64", width=4)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "shli",
            "%I = icmp ult i32 %b, 32\n%S = select i1 %I, i32 %b, i32 0\n%V = shl i32 %a, %S\n... = select i1 %I, i32 %V, i32 0",
        ),
        (
            "shrui",
            "%I = icmp ult i32 %b, 32\n%S = select i1 %I, i32 %b, i32 0\n%V = lshr i32 %a, %S\n... = select i1 %I, i32 %V, i32 0",
        ),
        ("shrsi", "%I = icmp ult i32 %b, 32\n%S = select i1 %I, i32 %b, i32 31\n... = ashr i32 %a, %S"),
    ],
)
def test_shifts_by_the_width_or_more_give_zero_or_the_sign(name: str, expected: str) -> None:
    in_order(lower(f"arith.{name} %a, %b : i32", "i32", "i32"), expected)
    assert len(lower(f"arith.{name} %a, %b : i32", "i32", "i32", constants=(1,)).splitlines()) == 1


@pytest.mark.parametrize(
    ("kind", "small"), [(F16, True), (BF16, True), (F8E5M2, True), (F32, False), (F64, False), (I32, False)]
)
def test_small_floats_have_no_arithmetic_of_their_own(kind: Type, small: bool) -> None:
    assert is_small(kind) is small


def test_halves_are_computed_in_float32() -> None:
    in_order(
        lower("arith.mulf %a, %b : f16", "f16", "f16"),
        """
        %A = fpext half %a to float
        %B = fpext half %b to float
        %P = fmul contract float %A, %B
        ... = fptrunc float %P to half
        """,
    )
    assert lower("arith.select %a, %b, %c : f16", "i1", "f16", "f16").strip() == "%v1 = select i1 %a, half %b, half %c"
    in_order(lower("arith.sitofp %a : i32 to bf16", "i32"), "%F = sitofp i32 %a to float\n%B = bitcast float %F to i32")


def test_bfloat16_is_rounded_by_integer_arithmetic_or_by_its_instruction() -> None:
    line = "arith.truncf %a : f32 to bf16"
    in_order(
        lower(line, "f32"),
        """
        %B = bitcast float %a to i32
        %S = lshr i32 %B, 16
        %O = and i32 %S, 1
        %H = add i32 %O, 32767
        %R = add i32 %B, %H
        %Q = or i32 %B, 4194304
        %N = fcmp uno float %a, %a
        %C = select i1 %N, i32 %Q, i32 %R
        %T = lshr i32 %C, 16
        ... = trunc i32 %T to i16
        """,
    )
    assert "fptrunc float %a to bfloat" in lower(line, "f32", bf16=True)


def test_float64_is_rounded_to_16_bits_once() -> None:
    text = lower("arith.truncf %a : f64 to f16", "f64")
    in_order(
        text,
        """
        %F = fptrunc double %a to float
        %B = fpext float %F to double
        %E = fcmp ueq double %B, %a
        %O = or i32 ..., 1
        %S = select i1 %E, i32 ..., i32 %O
        %V = bitcast i32 %S to float
        ... = fptrunc float %V to half
        """,
    )


def test_rounding_toward_zero_steps_back() -> None:
    in_order(
        lower("tt.fp_to_fp %a, rounding = rtz : f32 -> f16", "f32"),
        """
        %N = fptrunc float %a to half
        %B = fpext half %N to float
        %L = fcmp ogt float %X, %Y
        %I = bitcast half %N to i16
        %S = sub i16 %I, 1
        %R = select i1 %L, i16 %S, i16 %I
        """,
    )


@pytest.mark.parametrize(("kind", "guards"), [(F8E4M3FN, 0), (F8E4M3FNUZ, 1)], ids=str)
def test_what_would_become_minus_zero_becomes_zero_where_that_is_nan(kind: FloatType, guards: int) -> None:
    text = lower(f"tt.fp_to_fp %a, rounding = rtz : f32 -> {kind}", "f32")
    assert count(text, "%A = icmp eq i8 %B, -128") == guards


def test_functions_of_float32_are_inline_and_others_call_the_c_library() -> None:
    assert "call float @llvm.fma" in lower("math.exp %a : f32", "f32")
    assert lower("math.exp %a : f64", "f64").strip() == "%v1 = call double @exp(double %a)"
    assert "call double @llvm.fma" in lower("math.sin %a : f32", "f32")
    text = lower("math.cos %a : f64", "f64", width=2)
    assert count(text, "%A = call double @cos(double %B)") == 2
    in_order(
        text, "%C = insertelement <2 x double> poison, double %A, i64 0\n%D = insertelement <2 x double> %C, double %B, i64 1"
    )


def test_high_halves_of_products() -> None:
    in_order(
        lower("tt.mulhiui %a, %b : i32", "i32", "i32"),
        "%A = zext i32 %a to i64\n%B = zext i32 %b to i64\n%P = mul i64 %A, %B\n%H = lshr i64 %P, 32\n... = trunc i64 %H to i32",
    )


@pytest.mark.parametrize(("propagate", "names"), [("none", ("maxnum", "minnum")), ("all", ("maximum", "minimum"))])
def test_clamping_passes_nan_on_where_it_is_asked_to(propagate: str, names: tuple[str, str]) -> None:
    text = lower(f"tt.clampf %a, %b, %c, propagateNan = {propagate} : f32", "f32", "f32", "f32")
    most, least = names
    in_order(
        text, f"%M = call float @llvm.{most}.f32(float %a, float %b)\n... = call float @llvm.{least}.f32(float %M, float %c)"
    )


@pytest.mark.parametrize(
    ("name", "known"),
    [("arith.addf", True), ("tt.fp_to_fp", True), ("math.exp", True), ("tt.load", False), ("tt.dot", False), ("scf.if", False)],
)
def test_what_is_elementwise(name: str, known: bool) -> None:
    assert is_elementwise(name) is known
