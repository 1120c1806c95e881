"""Compiles launches for the GPU stage by stage, and runs them on the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernelpack.backends.cuda import CUDABackend
from kernelpack.backends.cuda.context import CudaContext
from kernelpack.backends.cuda.lowering.ttgir_to_llir import ttgir_to_llir
from kernelpack.backends.cuda.ttir_to_ttgir import TTGIR
from kernelpack.compiler.stages import optimise_ttir
from kernelpack.errors import EmulationError
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.core import Operation
from kernelpack.ir.text import parse_module
from kernelpack.ir.verify import verify
from kernelpack.simt import SCHEDULES, Program, Removable
from kernelpack.target import Target
from tests.backends.cuda.launch import Launch


def lower(launch: Launch, target: str = "cuda:sm_80") -> tuple[Operation, str, CudaContext]:
    """Returns the verified ttgir of a launch's kernel, which also parses again, and its LLVM IR."""
    special, _ = launch.specialize()
    module = optimise_ttir(ast_to_ttir(launch.fn, dict(special.signature), dict(special.constexprs), special.facts))
    lowered = CudaContext(CUDABackend().resolve_target(Target.parse(target)), launch.options, launch.fn.__name__)
    ttgir = TTGIR(module, lowered)
    verify(ttgir)
    again = parse_module(str(ttgir))
    verify(again)
    assert str(again) == str(ttgir)
    return ttgir, ttgir_to_llir(ttgir, lowered), lowered


def emulate(launch: Launch, target: str = "cuda:sm_80") -> None:
    """Runs a launch on the emulator and holds what it leaves in memory to what is expected."""
    _, llir, lowered = lower(launch, target)
    special, values = launch.specialize()
    figures = lowered.figures
    names = [name for name, _ in special.signature]
    program = Program(llir, figures["threads"], figures["shared"], names, lowered.descriptors)
    run_every_schedule(program, launch.grid, values)
    launch.check(launch.arguments)


def shows(program: Program, launch: Launch, values: Sequence[Any], fault: Removable) -> bool:
    """Whether a run without something that `removable` lists is reported, or leaves something else, in any schedule."""
    before = [value.clone() if isinstance(value, torch.Tensor) else value for value in values]
    for schedule in SCHEDULES:
        for value, start in zip(values, before, strict=True):
            if isinstance(value, torch.Tensor):
                value.copy_(start)
        try:
            program.run(launch.grid, values, schedule=schedule, without=fault)
            launch.check(launch.arguments)
        except (EmulationError, AssertionError):
            return True
    return False


def run_every_schedule(program: Program, grid: Sequence[int], values: Sequence[Any]) -> None:
    """Runs a grid in every order, with asynchronous operations early and late; all must leave the same in the tensors."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    before = [tensor.clone() for tensor in tensors]
    first: list[torch.Tensor] | None = None
    for schedule in SCHEDULES:
        for tensor, start in zip(tensors, before, strict=True):
            tensor.copy_(start)
        program.run(grid, values, schedule=schedule)
        if first is None:
            first = [tensor.clone() for tensor in tensors]
        for one, other in zip(first, tensors, strict=True):  # atomics on floats may add in another order
            exact = not one.dtype.is_floating_point or one.dtype.itemsize == 1
            if one.dtype.itemsize == 1:
                one, other = one.view(torch.uint8), other.view(torch.uint8)
            torch.testing.assert_close(one, other, rtol=0 if exact else 1e-5, atol=0 if exact else 1e-5, equal_nan=True)
