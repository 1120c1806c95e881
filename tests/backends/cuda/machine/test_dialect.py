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


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (f"ttng.arrive_barrier %b : {TWO}", f"%b: {TWO}", "the barrier must be one i64 of shared memory"),
        ("ttng.wait_barrier_named %n, 48", "%n: i32", "48 threads are no whole number of warps"),
        ("ttng.wait_barrier_named %n, 2048", "%n: i32", "2048 threads are no whole number of warps"),
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
