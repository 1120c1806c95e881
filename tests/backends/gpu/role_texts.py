"""Roles of warps as text, and the functions that hold them."""

from __future__ import annotations

from kernelpack.ir.core import Operation, entry_function
from kernelpack.layout.families import Threads, spread
from tests.backends.gpu.ttgir import parse


def role(num_warps: int = 4, copies: int = 1, registers: int = 0) -> str:
    attributes = f"copies = {copies} : i32, num_warps = {num_warps} : i32, registers = {registers} : i32"
    return f'"ttg.role"() <{{{attributes}}}> ({{\n^bb0(%c: i32):\n%two = arith.addi %c, %c : i32\nttg.warp_return\n}}) : () -> ()\n'


def group(*roles: str) -> str:
    return f'"ttg.warp_specialize"() ({{\n{"".join(roles)}ttg.warp_return\n}}) : () -> ()\n'


def function(body: str) -> Operation:
    return entry_function(parse(body, "%n: i32, %b: i1, %x: tensor<64xf32, $L>", {"L": spread((64,), 1, (0,), Threads(4, 32))}))
