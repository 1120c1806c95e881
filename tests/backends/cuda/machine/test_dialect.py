"""Operations of sm_90a are held to what the hardware takes."""

from __future__ import annotations

import pytest

from kernelpack.errors import VerifyError
from kernelpack.layout.encoding import tma_encoding
from kernelpack.layout.families import swizzled, warpgroup_accumulator
from tests.backends.gpu.lowering.llir import parse

ONE = "!ttg.memdesc<1xi64, $B, #ttg.shared_memory>"
TWO = "!ttg.memdesc<2xi64, $B, #ttg.shared_memory>"
LAYOUTS = {"B": swizzled((1,), (0,)), "C": warpgroup_accumulator((64, 16), (4, 1))}
BLOCK = "!tt.tensordesc<tensor<64x64xf16>>"
TILE = f"!ttg.memdesc<64x64xf16, {tma_encoding((64, 64), 16, swizzle=0)}, #ttg.shared_memory>"
A = f"!ttg.memdesc<64x32xf16, {tma_encoding((64, 32), 16)}, #ttg.shared_memory>"
B = f"!ttg.memdesc<16x16xf16, {tma_encoding((16, 16), 16)}, #ttg.shared_memory>"


def role(warps: int = 4, copies: int = 1, registers: int = 0, argument: str = "%c: i32", end: str = "ttg.warp_return") -> str:
    inner = f'"ttg.role"() <{{copies = {copies} : i32, num_warps = {warps} : i32, registers = {registers} : i32}}> ({{\n^bb0({argument}):\n{end}\n}}) : () -> ()'
    return f'"ttg.warp_specialize"() ({{\n{inner}\nttg.warp_return\n}}) : () -> ()'


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (f"ttng.arrive_barrier %b : {TWO}", f"%b: {TWO}", "the barrier must be one i64 of shared memory"),
        ("ttng.wait_barrier_named %n, 48", "%n: i32", "48 threads are no whole number of warps"),
        ("ttng.wait_barrier_named %n, 2048", "%n: i32", "2048 threads are no whole number of warps"),
        (role(warps=3), "", "num_warps = 3 is not 1, 2, 4, 8 or 16"),
        (role(copies=0), "", "copies = 0 is below 1"),
        (role(registers=100), "", "registers = 100 is no multiple of 8 from 24 to 256"),
        (role(registers=16), "", "registers = 16 is no multiple of 8 from 24 to 256"),
        (role(argument="%c: i64"), "", "the body takes the number of the copy, an i32"),
        ('"ttg.warp_specialize"() ({\nttg.warp_return\n}) : () -> ()', "", "there is no role"),
        (
            f"ttng.async_tma_copy_local_to_global %d[%i] %t : {BLOCK}, {TILE}",
            f"%d: {BLOCK}, %i: i32, %t: {TILE}",
            "takes 2 coordinates of type i32",
        ),
        (
            f"ttng.async_tma_copy_local_to_global %d[%i, %i] %t : {BLOCK}, {TILE}",
            f"%d: {BLOCK}, %i: i32, %t: {TILE}",
            "the buffer of !tt.tensordesc<tensor<64x64xf16>> is",
        ),
        (
            f"%r = ttng.warp_group_dot %a, %b, %c : {A} * {B} -> tensor<64x16xf32, $C>",
            f"%a: {A}, %b: {B}, %c: tensor<64x16xf32, $C>",
            "tiles do not fit",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(text: str, arguments: str, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        parse(text, arguments, LAYOUTS)


@pytest.mark.parametrize("text", [role(), role(16, 7, 24), role(1, 2, 256)])
def test_roles_of_whole_warps_are_taken(text: str) -> None:
    parse(text, "")
