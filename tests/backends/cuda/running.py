"""Compiles launches for the GPU stage by stage, and runs them on the emulator."""

from __future__ import annotations

from typing import Any

import torch

from kernelpack.backends.base import Lowered
from kernelpack.backends.cuda import CUDABackend
from kernelpack.backends.cuda.ttgir_to_llir import ttgir_to_llir
from kernelpack.backends.cuda.ttir_to_ttgir import ttir_to_ttgir
from kernelpack.compiler import optimise_ttir
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.core import Operation
from kernelpack.ir.text import parse_module
from kernelpack.ir.verify import verify
from kernelpack.target import Target
from tests.backends.cuda.cases import Launch
from tests.backends.cuda.emulator import Kernel


def lower(launch: Launch, target: str = "cuda:sm_80") -> tuple[Operation, str, Lowered]:
    """Returns the verified ttgir of a launch's kernel, which also parses again, and its LLVM IR."""
    special, _ = launch.specialize()
    module = optimise_ttir(ast_to_ttir(launch.fn, dict(special.signature), dict(special.constexprs), special.facts))
    lowered = Lowered(CUDABackend().resolve_target(Target.parse(target)), launch.options, launch.fn.__name__)
    ttgir = ttir_to_ttgir(module, lowered)
    verify(ttgir)
    again = parse_module(str(ttgir))
    verify(again)
    assert str(again) == str(ttgir)
    return ttgir, ttgir_to_llir(ttgir, lowered), lowered


def emulate(launch: Launch, target: str = "cuda:sm_80") -> None:
    """Runs a launch on the emulator and holds what it leaves in memory to what is expected."""
    _, llir, lowered = lower(launch, target)
    _, values = launch.specialize()
    Kernel(llir, lowered.metadata["threads"])(launch.grid, *map(_in_memory, values))
    launch.check(launch.arguments)


def _in_memory(value: Any) -> Any:
    """Returns a tensor's memory as a flat array that shares it; numbers as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    size = 1 + sum((extent - 1) * stride for extent, stride in zip(value.shape, value.stride(), strict=True))
    flat = value.as_strided((size,), (1,))
    return (flat.view(torch.int16) if value.dtype == torch.bfloat16 else flat).numpy()
