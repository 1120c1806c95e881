"""Every elementwise operation in every type, on the emulator: the CUDA backend computes what the interpreter defines."""

from __future__ import annotations

import math

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cuda.context import CudaContext
from kernelpack.backends.cuda.lowering.elementwise import ELEMENTWISE
from kernelpack.backends.cuda.lowering.ttgir_to_llir import ttgir_to_llir
from kernelpack.backends.cuda.ttir_to_ttgir import TTGIR
from kernelpack.ir.types import BF16, F32, Type
from kernelpack.options import Options
from kernelpack.simt import Emulator, Program
from kernelpack.target import Target
from tests.backends.cuda.elementwise import KINDS, SMALL_FLOATS, Elementwise, rows_of
from tests.backends.cuda.launch import Launch, fresh
from tests.backends.cuda.running import emulate, lower

CONVERTED_BY_HARDWARE = [(kind, "cuda:sm_90a") for kind in (F32, *SMALL_FLOATS)]
"""Types whose conversions newer targets have instructions for."""


@pytest.mark.parametrize(("kind", "target"), [*((kind, "cuda:sm_80") for kind in KINDS), *CONVERTED_BY_HARDWARE], ids=str)
def test_computes_what_the_interpreter_defines(kind: Type, target: str) -> None:
    table = Elementwise(kind)
    lowered = CudaContext(Target.parse(target), Options(enable_fp_fusion=False), "kernel")
    llir = ttgir_to_llir(TTGIR(table.module(), lowered), lowered)
    memory = table.memory()
    program = Program(llir, lowered.figures["threads"], lowered.figures["shared"])
    program.run((1,), [torch.from_numpy(array) for array in memory])
    problems = table.problems(memory)
    if kind == BF16:  # the emulator's host has no such instruction, and rounds twice
        problems = [problem for problem in problems if not problem.startswith("math.fma")]
    assert not problems


def test_every_operation_of_the_table_is_covered() -> None:
    apart = {"arith.shli", "arith.shrsi", "arith.shrui", "tt.addptr", "tt.int_to_ptr", "tt.ptr_to_int"}
    covered = {row.name for kind in KINDS for row in rows_of(kind)}
    assert set(ELEMENTWISE) - covered == apart


@kp.jit
def _halve_row(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.where(i < n, tl.load(x + i, mask=i < n) * 0.5, 1.0))


@pytest.mark.parametrize(("n", "compares"), [(992, 2), (990, 8)])
def test_a_mask_that_ends_at_a_multiple_of_16_is_computed_once_for_neighbours(n: int, compares: int) -> None:
    x = torch.randn(1024)
    expected = torch.where(torch.arange(1024) < n, x * 0.5, 1.0)
    launch = Launch(_halve_row, (1,), {"x": x, "out": fresh(1024), "n": n, "BLOCK": 1024}, {"out": expected})
    assert lower(launch)[1].count("icmp slt i32") == compares
    emulate(launch)


@kp.jit
def _divide_row(x, by, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) / tl.load(by))


@pytest.mark.parametrize("by", [3.0, -7e-39, 2.5e38, 0.0, math.inf, math.nan])
def test_elements_with_one_divisor_share_its_reciprocal(by: float) -> None:
    x, divisor = torch.randn(1024), torch.tensor([by])
    x[:5] = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan])
    launch = Launch(
        _divide_row, (1,), {"x": x, "by": divisor, "out": fresh(1024), "BLOCK": 1024}, {"out": x / divisor}, tolerance=2**-22
    )
    llir = lower(launch)[1]
    assert (llir.count("= call float @llvm.nvvm.rcp"), llir.count("= call float @llvm.nvvm.div.full")) == (1, 0)
    emulate(launch)


def test_a_few_divisions_are_left_to_the_assembler() -> None:
    arguments = {"x": torch.randn(256), "by": torch.tensor([3.0]), "out": fresh(256), "BLOCK": 256}
    assert "@llvm.nvvm.rcp" not in lower(Launch(_divide_row, (1,), arguments, {}))[1]


@kp.jit
def _powers(x, exp, exp2, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(exp + i, tl.exp(tl.load(x + i)))
    tl.store(exp2 + i, tl.exp2(tl.load(x + i)))


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
def test_small_exponentials_become_zero_unless_the_launch_says_no(target: str) -> None:
    x = torch.linspace(-148, -80, 128)
    exact = [function(x.double()).float() for function in (torch.exp, torch.exp2)]
    kept, flushed = ([torch.full((128,), 7.0) for _ in exact] for _ in range(2))
    with Emulator(target):
        _powers[(1,)](x, *flushed, BLOCK=128)
        _powers[(1,)](x, *kept, BLOCK=128, enable_reflect_ftz=False)
    assert (flushed[1][x < -126] == 0).all()
    for result, wanted in zip(kept, exact, strict=True):
        torch.testing.assert_close(result, wanted, rtol=2e-6, atol=2.0**-148)
