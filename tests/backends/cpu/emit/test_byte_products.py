"""Which instructions make sums of four products of bytes; that they are exact, test_dot_bytes.py shows."""

from __future__ import annotations

import re

import pytest

from kernelpack.backends.cpu.emit import byte_products
from kernelpack.llvm.text import Emitter, Val
from tests.backends.cpu.emit.llir import written


def lines(
    width: int,
    pack: int,
    *,
    a_signed: bool = False,
    b_signed: bool = True,
    most: int = 255,
    features: str = "avx512",
    count: int = 1,
) -> str:
    em = Emitter(frozenset({features}))
    kind = "i32" if width == 1 else f"<{width} x i32>"
    pairs = [(Val(kind, f"%a{number}"), Val(kind, f"%b{number}")) for number in range(count)]
    byte_products.dot(em, Val(kind, "%acc"), pairs, a_signed, b_signed, most, pack)
    return written(em)


@pytest.mark.parametrize(("width", "bits"), [(16, 512), (8, 256), (4, 128)])
def test_one_instruction_of_vnni(width: int, bits: int) -> None:
    text = lines(width, 4)
    assert text.count("\n") == 0
    assert f"vpdpbusd.{bits}(<{width} x i32> %acc, <{width} x i32> %a0, <{width} x i32> %b0)" in text


@pytest.mark.parametrize(("signs", "opcode"), [((True, True), "sub"), ((False, False), "add")])
def test_equal_signs_take_a_second_one_and_a_correction(signs: tuple[bool, bool], opcode: str) -> None:
    text = lines(16, 4, a_signed=signs[0], b_signed=signs[1])
    assert text.count("vpdpbusd") == 2
    assert text.count(" xor ") == 1
    assert f"= {opcode} <16 x i32> %acc," in text


def test_the_unsigned_operand_comes_first() -> None:
    assert "%acc, <16 x i32> %b0, <16 x i32> %a0)" in lines(16, 4, a_signed=True, b_signed=False)


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize(
    ("signs", "name", "factors"),
    [
        ((True, True), "sdot", "ab"),
        ((False, False), "udot", "ab"),
        ((False, True), "usdot", "ab"),
        ((True, False), "usdot", "ba"),
    ],
)
def test_arm_has_an_instruction_for_any_signs(signs: tuple[bool, bool], name: str, factors: str, width: int) -> None:
    text = lines(width, 4, a_signed=signs[0], b_signed=signs[1], features="neon")
    first, second = (re.search(rf"(%\S+) = bitcast .* %{factor}0 to <{4 * width} x i8>", text) for factor in factors)
    assert first is not None
    assert second is not None
    call = f"@llvm.aarch64.neon.{name}.v{width}i32.v{4 * width}i8(<{width} x i32> %acc, <{4 * width} x i8> {first[1]}, <{4 * width} x i8> {second[1]})"
    assert call in text
    assert text.count(" = ") == 3


@pytest.mark.parametrize(("most", "sums"), [(15, 2), (127, 9)])
def test_arm_without_them_takes_signed_pairs(most: int, sums: int) -> None:
    text = lines(4, 1, most=most, features="neon", count=9)
    assert text.count("neon.smull.v8i16") == 2 * text.count("neon.addp.v8i16") == 18
    assert text.count("neon.saddlp.v4i32.v8i16") == sums
    assert text.count("add <8 x i16>") == 9 - sums


def test_arm_goes_byte_after_byte_where_vectors_are_not_whole() -> None:
    text = lines(2, 1, features="neon")
    assert text.count(" mul ") == 4
    assert "@llvm" not in text


def test_pairs_without_vnni() -> None:
    """The sum of two products must fit 16 bits: larger bytes are cut in two."""
    assert lines(16, 2, most=127).count("pmaddubs.w.512") == 1
    assert lines(16, 2, most=128).count("pmaddubs.w.512") == 2


@pytest.mark.parametrize(("most", "sums"), [(15, 2), (7, 1), (63, 5), (127, 9)])
def test_pairs_of_small_bytes_are_added_in_16_bits(most: int, sums: int) -> None:
    """Of 15 x -128 x 2, which is -3,840, eight fit."""
    text = lines(8, 2, most=most, count=9)
    assert text.count("pmadd.ub.sw") == 9
    assert text.count("pmadd.wd") == sums
    assert text.count("add <16 x i16>") == 9 - sums


def test_bytes_of_equal_signs_share_a_correction() -> None:
    text = lines(16, 4, a_signed=True, count=3)
    assert text.count("vpdpbusd") == 6
    assert text.count(" shl ") == 1


@pytest.mark.parametrize(("width", "pack"), [(1, 4), (2, 4), (16, 1)])
def test_byte_after_byte_where_there_is_no_instruction(width: int, pack: int) -> None:
    text = lines(width, pack)
    assert text.count(" mul ") == 4
    assert "@llvm" not in text
