"""Offsets of 64 bits are computed in 32 where a tensor is known to be small enough, and nowhere else."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from kernelpack.backends.gpu.passes.narrow_offsets import narrow_offsets
from kernelpack.compiled import CompiledKernel
from kernelpack.compiler.stages import compile_ttir, optimise_ttir
from kernelpack.facts import REACHES, Fact
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.core import entry_function
from kernelpack.ir.text import parse_module
from kernelpack.ir.verify import verify
from kernelpack.options import Options
from kernelpack.passes.dce import dce
from kernelpack.runtime.specialization import Specialization
from kernelpack.simt.compile import compile_program
from kernelpack.target import Target
from tests.frontend.compiling import define

SOURCE = """
@kp.jit
def gather(x, out, stride: tl.int64, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    wide = at.to(tl.int64)
    tl.store(out + wide, tl.load(x + ((wide % 4096) * stride + wide // 4096), mask=at < n), mask=at < n)
"""
TEXT = """
module {
  tt.func public @k(%x: !tt.ptr<f32> {tt.pointer_range = 32 : i32}, %y: !tt.ptr<f32>, %s: i64, %i: i32) {
    %0 = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
    %1 = arith.extsi %0 : tensor<16xi32> to tensor<16xi64>
    %2 = tt.splat %s : i64 -> tensor<16xi64>
    %3 = arith.muli %1, %2 : tensor<16xi64>
    %4 = tt.splat %x : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>
    %5 = tt.addptr %4, %3 : tensor<16x!tt.ptr<f32>>, tensor<16xi64>
    %6 = tt.load %5 : tensor<16x!tt.ptr<f32>>
    OTHER
    tt.return
  }
}
"""


def narrowed(other: str) -> tuple[list[str], set[str]]:
    """Returns the lines of arithmetic after the pass, and the arguments whose range was used."""
    module = parse_module(TEXT.replace("OTHER", other))
    used = narrow_offsets(entry_function(module))
    dce(module)
    verify(module)
    return [line.strip() for line in str(module).splitlines() if "arith." in line or "addptr" in line], used


def test_the_whole_chain_is_narrow() -> None:
    lines, used = narrowed("tt.store %4, %6 : tensor<16x!tt.ptr<f32>>")
    assert used == {"x"}
    assert [line.partition(" = ")[2].split(" ")[0] for line in lines] == ["arith.trunci", "arith.muli", "tt.addptr"]
    assert not any("i64>" in line for line in lines)


@pytest.mark.parametrize(
    "other",
    [
        "%7 = tt.addptr %5, %0 : tensor<16x!tt.ptr<f32>>, tensor<16xi32>\n    tt.store %7, %6 : tensor<16x!tt.ptr<f32>>",  # one part of two
        "%7 = tt.splat %y : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>\n    %8 = tt.addptr %7, %3 : tensor<16x!tt.ptr<f32>>, tensor<16xi64>\n"
        "    tt.store %8, %6 : tensor<16x!tt.ptr<f32>>",  # y may be larger; x takes the low half of the shared offset
    ],
)  # fmt: skip
def test_offsets_that_somebody_else_needs_stay_wide(other: str) -> None:
    lines, used = narrowed(other)
    assert any("arith.muli" in line and "xi64>" in line for line in lines)
    assert used == (set() if "%8" not in other else {"x"})


def test_only_ranges_that_were_used_guard_a_kernel() -> None:
    kernel = define(SOURCE)["gather"]
    signature = {"x": "*fp32", "out": "*fp32", "stride": "i64", "n": "i32"}
    ranges = tuple(Fact(name, "tt.pointer_range", 32) for name in ("out", "x"))

    def compiled(facts: tuple[Fact, ...]) -> CompiledKernel:
        module = optimise_ttir(ast_to_ttir(kernel, signature, {"B": 1024}, facts))
        return compile_ttir(module, Target.parse("cuda:sm_80"), replace(Options(), num_warps=4), facts)

    plain, small = compiled(()), compiled(ranges)
    assert small.facts == ranges
    plain_wide, small_wide = (
        [line for line in kernel.stages["ptx"].splitlines() if re.search(r"\t(add|sub|mul|mad|shl|or)[.\w]*64 ", line)]
        for kernel in (plain, small)
    )
    assert len(small_wide) < len(plain_wide)


def test_the_same_elements_are_read_and_written() -> None:
    """On the emulator, which reports accesses outside of tensors."""
    x, out = torch.randn(3 * 4096), torch.zeros(1500)
    ranges = tuple(Fact(name, "tt.pointer_range", 32) for name in ("out", "x"))
    special = Specialization((("x", "*fp32"), ("out", "*fp32"), ("stride", "i64"), ("n", "i32")), (("B", 1024),), ranges)
    program = compile_program(define(SOURCE)["gather"], special, Target.parse("cuda:sm_80"), Options())
    program.run((2,), [x, out, 3, 1500])
    torch.testing.assert_close(out, x[: 3 * 1500 : 3], rtol=0, atol=0)


def test_the_range_of_two_gigabytes() -> None:
    assert REACHES.holds(2**31 - 1, 32)
    assert not REACHES.holds(2**31, 32)
    assert REACHES.condition("kp::reach(x)", 32) == "kp::reach(x) >> (32 - 1) == 0"
