"""Elementwise operations of a thread: one instruction a register, floats rounded once, divisions defined for every divisor."""

from __future__ import annotations

import pytest

from kernelpack.layout.families import Threads, spread
from kernelpack.layout.linear import LinearLayout
from kernelpack.options import Options
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.llir import LANES, TARGETS, lower


def scalar(target: str, line: str, *kinds: str, options: Options | None = None) -> str:
    """The lines of an operation on %a, %b, %c of these types, without the one that says what is returned."""
    arguments = ", ".join(f"%{name}: {kind}" for name, kind in zip("abc", kinds, strict=False))
    result = (
        line.rpartition(" to ")[2]
        if " to " in line
        else line.rpartition(" -> ")[2]
        if " -> " in line
        else line.rpartition(" : ")[2]
    )
    if "cmp" in line:
        result = "i1"
    text = lower(f"%r = {line}\ntt.return %r : {result}", arguments, target=target, options=options)
    return "\n".join(text.splitlines()[:-1])


def four(target: str) -> dict[str, LinearLayout]:
    """The layout of a tile of 128 elements, of which a lane has four in a row; 64 lanes hold each of them twice."""
    return {"L": spread((128,), 4, (0,), Threads(1, LANES[target]))}


@pytest.mark.parametrize(
    ("line", "kinds", "expected"),
    [
        ("arith.addi %a, %b : i32", "i32 i32", "add i32 %a, %b"),
        ("arith.shrui %a, %b : i64", "i64 i64", "lshr i64 %a, %b"),
        ("arith.mulf %a, %b : f32", "f32 f32", "fmul contract float %a, %b"),
        ("tt.precise_divf %a, %b : f32", "f32 f32", "fdiv float %a, %b"),
        ("arith.negf %a : f16", "f16", "fneg half %a"),
        ("arith.maxui %a, %b : i16", "i16 i16", "call i16 @llvm.umax.i16(i16 %a, i16 %b)"),
        ("arith.maxnumf %a, %b : f32", "f32 f32", "call float @llvm.maxnum.f32(float %a, float %b)"),
        ("arith.cmpi slt, %a, %b : i32", "i32 i32", "icmp slt i32 %a, %b"),
        ("arith.cmpf oeq, %a, %b : bf16", "bf16 bf16", "fcmp oeq bfloat %a, %b"),
        ("arith.extui %a : i1 to i32", "i1", "zext i1 %a to i32"),
        ("arith.extf %a : f16 to f32", "f16", "fpext half %a to float"),
        ("arith.truncf %a : f64 to f16", "f64", "fptrunc double %a to half"),
        ("arith.sitofp %a : i64 to f32", "i64", "sitofp i64 %a to float"),
        ("arith.fptosi %a : f32 to i32", "f32", "call i32 @llvm.fptosi.sat.i32.f32(float %a)"),
        ("tt.bitcast %a : f32 -> i32", "f32", "bitcast float %a to i32"),
        ("tt.ptr_to_int %a : !tt.ptr<f32> -> i64", "!tt.ptr<f32>", "ptrtoint ptr addrspace(1) %a to i64"),
    ],
)
@TARGETS
def test_one_instruction(target: str, line: str, kinds: str, expected: str) -> None:
    assert scalar(target, line, *kinds.split()).partition(" = ")[2] == expected


@pytest.mark.parametrize(("pointee", "memory"), [("f64", "double"), ("i1", "i8"), ("bf16", "bfloat")])
@TARGETS
def test_offsets_of_pointers_count_elements_as_they_lie_in_memory(target: str, pointee: str, memory: str) -> None:
    text = lower(
        f"%r = tt.addptr %p, %n : !tt.ptr<{pointee}>, i32\ntt.return %r : !tt.ptr<{pointee}>",
        f"%p: !tt.ptr<{pointee}>, %n: i32",
        target=target,
    )
    in_order(text, f"%R = getelementptr {memory}, ptr addrspace(1) %p, i32 %n\nreturn %R")


@TARGETS
def test_products_do_not_fuse_where_the_option_forbids_it(target: str) -> None:
    text = scalar(target, "arith.mulf %a, %b : f32", "f32", "f32", options=Options(num_warps=1, enable_fp_fusion=False))
    assert text.endswith("= fmul float %a, %b")


@TARGETS
def test_every_register_of_a_tile_is_computed(target: str) -> None:
    text = lower(
        "%r = arith.select %c, %x, %y : tensor<128xf32, $L>\ntt.return %r : tensor<128xf32, $L>",
        "%c: i1, %x: tensor<128xf32, $L>, %y: tensor<128xf32, $L>",
        four(target),
        target,
    )
    for register in range(4):
        in_order(text, f"%A = select i1 %c, float %x{register}, float %y{register}")


@TARGETS
def test_what_is_the_same_for_neighbours_is_computed_once(target: str) -> None:
    """A mask that ends at a multiple of 16 is one value for the four registers of a thread."""
    text = lower(
        """
        %c16 = arith.constant 16 : i32
        %m = arith.muli %n, %c16 : i32
        %i = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32, $L>
        %e = tt.splat %m : i32 -> tensor<128xi32, $L>
        %r = arith.cmpi slt, %i, %e : tensor<128xi32, $L>
        tt.return %r : tensor<128xi1, $L>
        """,
        "%n: i32",
        four(target),
        target,
    )
    assert count(text, "%A = icmp slt i32 ...") == 1
    in_order(text, "%A = icmp slt i32 ...\nreturn %A, %A, %A, %A")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "divsi",
            """
            %Z = icmp eq i32 %b, 0
            %S = select i1 %Z, i32 1, i32 %b
            %N = icmp eq i32 %b, -1
            %D = select i1 %N, i32 1, i32 %S
            %Q = sdiv i32 %a, %D
            %M = sub i32 0, %a
            %R = select i1 %N, i32 %M, i32 %Q
            """,
        ),
        ("remsi", "%N = icmp eq i32 %b, -1\n%D = select i1 %N, i32 1, i32 %S\n%Q = srem i32 %a, %D"),
        ("divui", "%Z = icmp eq i32 %b, 0\n%S = select i1 %Z, i32 1, i32 %b\n%Q = udiv i32 %a, %S"),
    ],
)
@TARGETS
def test_divisions_are_defined_for_every_divisor(target: str, name: str, expected: str) -> None:
    in_order(scalar(target, f"arith.{name} %a, %b : i32", "i32", "i32"), expected)


@pytest.mark.parametrize(("divisor", "lines"), [(7, 1), (-1, 7), (0, 7)])
@TARGETS
def test_a_constant_divisor_needs_no_care_unless_it_is_0_or_minus_1(target: str, divisor: int, lines: int) -> None:
    text = lower(
        f"%c = arith.constant {divisor} : i32\n%r = arith.divsi %a, %c : i32\ntt.return %r : i32", "%a: i32", target=target
    )
    assert len(text.splitlines()) - 1 == lines


@TARGETS
def test_tiles_that_are_not_below_zero_can_be_divided_by_minus_one(target: str) -> None:
    """All but the smallest integer can, which is below zero."""
    text = lower(
        """
        %i = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32, $L>
        %e = tt.splat %n : i32 -> tensor<128xi32, $L>
        %r = arith.divsi %i, %e : tensor<128xi32, $L>
        tt.return %r : tensor<128xi32, $L>
        """,
        "%n: i32",
        four(target),
        target,
    )
    in_order(text, "%Z = icmp eq i32 %n, 0\n%D = select i1 %Z, i32 1, i32 %n\n%R = sdiv i32 ..., %D")
    assert count(text, "%A = sdiv ...") == count(text, "%A = select ...") == 4


@pytest.mark.parametrize(
    ("name", "divisor", "instruction"), [("divsi", 12, "udiv"), ("remsi", 64, "urem"), ("divsi", -12, "sdiv")]
)
@TARGETS
def test_tiles_that_are_not_below_zero_are_divided_without_a_sign(
    target: str, name: str, divisor: int, instruction: str
) -> None:
    text = lower(
        f"""
        %i = tt.make_range {{end = 128 : i32, start = 0 : i32}} : tensor<128xi32, $L>
        %c = arith.constant dense<{divisor}> : tensor<128xi32, $L>
        %r = arith.{name} %i, %c : tensor<128xi32, $L>
        tt.return %r : tensor<128xi32, $L>
        """,
        "",
        four(target),
        target,
    )
    assert {line.split()[2] for line in text.splitlines() if "div" in line or "rem" in line} == {instruction}


@TARGETS
def test_float64_becomes_bfloat16_by_one_rounding(target: str) -> None:
    in_order(
        scalar(target, "arith.truncf %a : f64 to bf16", "f64"),
        """
        %F = fptrunc double %a to float
        %B = fpext float %F to double
        %I = bitcast float %F to i32
        %A = fcmp ogt double ...
        %C = sub i32 %I, 1
        %T = select i1 %A, i32 %C, i32 %I
        %X = fcmp one double %B, %a
        %O = or i32 %T, 1
        %S = select i1 %X, i32 %O, i32 %I
        %V = bitcast i32 %S to float
        ... = fptrunc float %V to bfloat
        """,
    )


@TARGETS
def test_integers_become_bfloat16_by_one_rounding(target: str) -> None:
    in_order(
        scalar(target, "arith.sitofp %a : i32 to bf16", "i32"), "%D = sitofp i32 %a to double\n%F = fptrunc double %D to float"
    )
    assert scalar(target, "arith.sitofp %a : i16 to bf16", "i16").splitlines()[0].endswith("sitofp i16 %a to float")


@TARGETS
def test_floats_become_booleans_through_bytes(target: str) -> None:
    in_order(
        scalar(target, "arith.fptosi %a : f32 to i1", "f32"),
        "%B = call i8 @llvm.fptosi.sat.i8.f32(float %a)\n... = icmp slt i8 %B, 0",
    )
    in_order(
        scalar(target, "arith.fptoui %a : f32 to i1", "f32"),
        "%B = call i8 @llvm.fptoui.sat.i8.f32(float %a)\n... = icmp ne i8 %B, 0",
    )


@TARGETS
def test_the_high_half_of_a_product(target: str) -> None:
    in_order(
        scalar(target, "tt.mulhiui %a, %b : i32", "i32", "i32"),
        "%A = zext i32 %a to i64\n%B = zext i32 %b to i64\n%P = mul i64 %A, %B\n%H = lshr i64 %P, 32\n... = trunc i64 %H to i32",
    )


@TARGETS
def test_clamping_takes_nan_to_a_bound_or_passes_it_on(target: str) -> None:
    text = scalar(target, "tt.clampf %a, %b, %c : f32", "f32", "f32", "f32")
    in_order(
        text, "%M = call float @llvm.maxnum.f32(float %a, float %b)\n... = call float @llvm.minnum.f32(float %M, float %c)"
    )
    text = scalar(target, "tt.clampf %a, %b, %c, propagateNan = all : f32", "f32", "f32", "f32")
    in_order(
        text, "%M = call float @llvm.maximum.f32(float %a, float %b)\n... = call float @llvm.minimum.f32(float %M, float %c)"
    )
