"""Operations of ttgir check what they are given."""

from __future__ import annotations

import pytest

from kernelpack.errors import VerifyError
from kernelpack.layout.families import Threads, spread, swizzled
from tests.backends.gpu.ttgir import parse

LAYOUTS = {
    "R": spread((16, 32), 1, (1, 0), Threads(1, 32)),
    "C": spread((16, 32), 1, (0, 1), Threads(1, 32)),
    "H": spread((16, 16), 1, (1, 0), Threads(1, 32)),
    "S": swizzled((16, 32), (1, 0)),
    "T": swizzled((32, 16), (1, 0)),
    "V": swizzled((2, 16, 32), (2, 1, 0)),
}
TILE = "tensor<16x32xf32, $R>"
BUFFER = "!ttg.memdesc<16x32xf32, $S, #ttg.shared_memory>"
TURNED = "!ttg.memdesc<32x16xf32, $T, #ttg.shared_memory>"
TWO = "!ttg.memdesc<2x16x32xf32, $V, #ttg.shared_memory>"


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (f"%y = ttg.convert_layout %x : {TILE} -> tensor<16x32xf32, $C>", f"%x: {TILE}"),
        (f"%y = ttg.local_alloc %x : ({TILE}) -> {BUFFER}", f"%x: {TILE}"),
        (f"%y = ttg.memdesc_index %b[%i] : {TWO} -> {BUFFER}", f"%b: {TWO}, %i: i32"),
        (
            f"%y = ttg.fma_dot %a, %b, %c : {BUFFER} * {TURNED} -> tensor<16x16xf32, $H>",
            f"%a: {BUFFER}, %b: {TURNED}, %c: tensor<16x16xf32, $H>",
        ),
    ],
)
def test_what_fits_is_taken(text: str, arguments: str) -> None:
    parse(text, arguments, LAYOUTS)


def role(warps: int = 4, copies: int = 1, registers: int = 0, argument: str = "%c: i32", end: str = "ttg.warp_return") -> str:
    inner = f'"ttg.role"() <{{copies = {copies} : i32, num_warps = {warps} : i32, registers = {registers} : i32}}> ({{\n^bb0({argument}):\n{end}\n}}) : () -> ()'
    return f'"ttg.warp_specialize"() ({{\n{inner}\nttg.warp_return\n}}) : () -> ()'


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (role(warps=3), "", "num_warps = 3 is not 1, 2, 4, 8 or 16"),
        (role(copies=0), "", "copies = 0 is below 1"),
        (role(argument="%c: i64"), "", "the body takes the number of the copy, an i32"),
        ('"ttg.warp_specialize"() ({\nttg.warp_return\n}) : () -> ()', "", "there is no role"),
        (f"%y = ttg.convert_layout %x : {TILE} -> tensor<16x16xf32, $H>", f"%x: {TILE}", "only the encoding may change"),
        (f"%y = ttg.convert_layout %x : {TILE} -> tensor<16x32xi32, $C>", f"%x: {TILE}", "only the encoding may change"),
        (f"%y = ttg.local_alloc %x : ({TILE}) -> {TURNED}", f"%x: {TILE}", "tiles differ: tensor<16x32xf32"),
        (f"ttg.local_store %x, %b : {TILE} -> {TURNED}", f"%x: {TILE}, %b: {TURNED}", "tiles differ"),
        (f"%y = ttg.local_load %b : {BUFFER} -> tensor<16x32xi32, $R>", f"%b: {BUFFER}", "tiles differ"),
        (f"%y = ttg.memdesc_index %b[%i] : {TWO} -> {TURNED}", f"%b: {TWO}, %i: i32", "does not consist of"),
        (
            f"%y = ttg.fma_dot %a, %a, %c : {BUFFER} * {BUFFER} -> {TILE}",
            f"%a: {BUFFER}, %c: {TILE}",
            r"shapes do not fit: \(16, 32\) \* \(16, 32\) -> \(16, 32\)",
        ),
        (
            f"%y = ttg.fma_dot %a, %b, %c : {BUFFER} * {TURNED} -> {TILE}",
            f"%a: {BUFFER}, %b: {TURNED}, %c: {TILE}",
            r"shapes do not fit: \(16, 32\) \* \(32, 16\) -> \(16, 32\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(text: str, arguments: str, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        parse(text, arguments, LAYOUTS)


@pytest.mark.parametrize("text", [role(), role(16, 7, 24), role(1, 2, 256)])
def test_roles_of_whole_warps_are_taken(text: str) -> None:
    parse(text, "", {})
