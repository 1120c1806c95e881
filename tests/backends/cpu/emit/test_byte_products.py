"""Which instructions make sums of four products of bytes; that they are exact, test_dot_bytes.py shows."""

from __future__ import annotations

import re

import pytest

from kernelpack.backends.cpu.emit import byte_products
from kernelpack.llvm.text import Emitter, Val
from tests.backends.cpu.emit.llir import written


def lines(
    width: int, pack: int, *, a_signed: bool = False, b_signed: bool = True, most: int = 255, features: str = "avx512"
) -> str:
    em = Emitter(frozenset({features}))
    kind = "i32" if width == 1 else f"<{width} x i32>"
    byte_products.dot(em, Val(kind, "%a"), Val(kind, "%b"), Val(kind, "%acc"), a_signed, b_signed, most, pack)
    return written(em)


@pytest.mark.parametrize(("width", "bits"), [(16, 512), (8, 256), (4, 128)])
def test_one_instruction_of_vnni(width: int, bits: int) -> None:
    text = lines(width, 4)
    assert text.count("\n") == 0
    assert f"vpdpbusd.{bits}(<{width} x i32> %acc, <{width} x i32> %a, <{width} x i32> %b)" in text


@pytest.mark.parametrize(("signs", "opcode"), [((True, True), "sub"), ((False, False), "add")])
def test_equal_signs_take_a_second_one_and_a_correction(signs: tuple[bool, bool], opcode: str) -> None:
    text = lines(16, 4, a_signed=signs[0], b_signed=signs[1])
    assert text.count("vpdpbusd") == 2
    assert text.count(" xor ") == 1
    assert f"= {opcode} <16 x i32> %acc," in text


def test_the_unsigned_operand_comes_first() -> None:
    assert "%acc, <16 x i32> %b, <16 x i32> %a)" in lines(16, 4, a_signed=True, b_signed=False)


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
    first, second = (re.search(rf"(%\S+) = bitcast .* %{factor} to <{4 * width} x i8>", text) for factor in factors)
    assert first is not None
    assert second is not None
    call = f"@llvm.aarch64.neon.{name}.v{width}i32.v{4 * width}i8(<{width} x i32> %acc, <{4 * width} x i8> {first[1]}, <{4 * width} x i8> {second[1]})"
    assert call in text
    assert text.count(" = ") == 3


def test_arm_without_them_goes_byte_after_byte() -> None:
    text = lines(4, 1, features="neon")
    assert text.count(" mul ") == 4
    assert "@llvm" not in text


def test_pairs_without_vnni() -> None:
    """The sum of two products must fit 16 bits: larger bytes are cut in two."""
    assert lines(16, 2, most=127).count("pmaddubs.w.512") == 1
    assert lines(16, 2, most=128).count("pmaddubs.w.512") == 2


@pytest.mark.parametrize(("width", "pack"), [(1, 4), (2, 4), (16, 1)])
def test_byte_after_byte_where_there_is_no_instruction(width: int, pack: int) -> None:
    text = lines(width, pack)
    assert text.count(" mul ") == 4
    assert "@llvm" not in text
