"""Conversions of 8-bit floats: in pairs by instructions where a GPU has them, by integer arithmetic elsewhere."""

from __future__ import annotations

import pytest

from kernelpack.layout.families import Threads, spread
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.llir import SM80, SM90, lower

L = {"L": spread((128,), 4, (0,), Threads(1, 32))}


def convert(source: str, result: str, target: str = SM80, rounding: str = "", tile: bool = False) -> str:
    kinds = [f"tensor<128x{kind}, $L>" if tile else kind for kind in (source, result)]
    more = f", rounding = {rounding}" if rounding else ""
    return lower(
        f"%r = tt.fp_to_fp %x{more} : {kinds[0]} -> {kinds[1]}\ntt.return %r : {kinds[1]}", f"%x: {kinds[0]}", L, target
    )


def test_e5m2_is_the_upper_byte_of_a_half() -> None:
    in_order(
        convert("f8E5M2", "f32"),
        """
        %A = zext i8 %x to i16
        %B = shl i16 %A, 8
        %C = bitcast i16 %B to half
        %D = fpext half %C to float
        return %D
        """,
    )


def test_e4m3_is_widened_in_pairs_where_there_is_an_instruction() -> None:
    text = convert("f8E4M3FN", "f16", SM90, tile=True)
    assert count(text, "%A = call <2 x half> @llvm.nvvm.e4m3x2.to.f16x2.rn(i16 %B)") == 2
    in_order(
        text,
        """
        %A = insertelement <2 x i8> poison, i8 %x0, i64 0
        %B = insertelement <2 x i8> %A, i8 %x1, i64 1
        %C = bitcast <2 x i8> %B to i16
        %D = call <2 x half> @llvm.nvvm.e4m3x2.to.f16x2.rn(i16 %C)
        %E = extractelement <2 x half> %D, i64 0
        """,
    )


@pytest.mark.parametrize(("kind", "scale", "nan"), [("f8E4M3FN", "half 0xH5C00", 127), ("f8E4M3B15", None, 127)])
def test_e4m3_is_widened_by_its_fields_elsewhere(kind: str, scale: str | None, nan: int) -> None:
    text = convert(kind, "f16")
    in_order(
        text,
        f"""
        %W = zext i8 %x to i16
        %M = and i16 %W, 127
        %F = shl i16 %M, 7
        %H = bitcast i16 %F to half
        %N = icmp eq i16 %M, {nan}
        %S = select i1 %N, half 0xH7E00, half ...
        %I = bitcast half %S to i16
        %G = and i16 %W, 128
        %K = shl i16 %G, 8
        %R = or i16 %I, %K
        """,
    )
    assert count(text, f"%A = fmul half %B, {(scale or 'x y').split()[1]}") == (scale is not None)


def test_floats_are_narrowed_in_pairs_whose_first_operand_is_the_upper_half() -> None:
    text = convert("f32", "f8E5M2", SM90, tile=True)
    in_order(
        text,
        """
        %A = call i16 @llvm.nvvm.ff.to.e5m2x2.rn(float %x1, float %x0)
        %B = bitcast i16 %A to <2 x i8>
        %C = extractelement <2 x i8> %B, i64 0
        %D = extractelement <2 x i8> %B, i64 1
        %E = call i16 @llvm.nvvm.ff.to.e5m2x2.rn(float %x3, float %x2)
        return %C, %D, ...
        """,
    )


def test_a_single_float_is_its_own_neighbour() -> None:
    text = convert("f32", "f8E4M3FN", SM90)
    in_order(text, "%A = call i16 @llvm.nvvm.ff.to.e4m3x2.rn(float %x, float %x)")
    assert len(text.splitlines()[-1].split()) == 2  # one register is returned


@pytest.mark.parametrize(("target", "rounding"), [(SM80, "rtne"), (SM80, "rtz"), (SM90, "rtz")])
def test_other_narrowings_round_the_bits_that_are_cut_off(target: str, rounding: str) -> None:
    text = convert("f32", "f8E4M3FN", target, rounding)
    in_order(
        text,
        """
        %I = bitcast float %x to i32
        %S = lshr i32 %I, 24
        %G = and i32 %S, 128
        %M = call float @llvm.fabs.f32(float %x)
        %B = call float @llvm.minnum.f32(float %M, float 0x407C000000000000)
        %W = bitcast float %B to i32
        %R = sub i32 ..., 960
        %L = fcmp olt float %B, 0x3F90000000000000
        %C = select i1 %L, i32 ..., i32 %R
        %Q = fcmp uno float %x, %x
        %V = select i1 %Q, i32 127, i32 %C
        %O = or i32 %V, %G
        ... = trunc i32 %O to i8
        """,
    )
    assert count(text, "%A = add i32 %B, 524287") == (rounding == "rtne")  # half of what is cut off, less one
    assert count(text, "%A = fptoui float %B to i32") == (rounding == "rtz")


def test_float64_is_rounded_to_odd_first() -> None:
    in_order(
        convert("f64", "f8E5M2", SM90),
        "%F = fptrunc double %x to float\n%O = or i32 ..., 1\n... = call i16 @llvm.nvvm.ff.to.e5m2x2.rn(...)",
    )


def test_between_two_formats_of_8_bits_values_go_through_halves() -> None:
    text = convert("f8E5M2", "f8E4M3FN", SM90)
    in_order(
        text,
        "%H = bitcast i16 ... to half\n%F = fpext half %H to float\n... = call i16 @llvm.nvvm.ff.to.e4m3x2.rn(float %F, float %F)",
    )
