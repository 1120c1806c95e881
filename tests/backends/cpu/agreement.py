"""Runs a @jit kernel at every CPU level of this machine and in the interpreter, and compares what they leave in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernelpack.compiler.stages import compile_ttir, optimise_ttir
from kernelpack.dtypes import DTYPES
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.core import Operation
from kernelpack.ir.interpret import launch
from kernelpack.kernel.jit import JITFunction
from kernelpack.options import Options
from kernelpack.target import Target
from tests.backends.cpu.kernels import levels_here, loaded_object


def ttir_of(kernel: JITFunction, arguments: Sequence[Any], constexprs: dict[str, Any]) -> Operation:
    """Returns a kernel's ttir for positional run-time arguments: tensors, ints (i32) and floats (fp32)."""
    names = [name for name in kernel.arg_names if name not in constexprs]
    signature = {}
    for name, value in zip(names, arguments, strict=True):
        if isinstance(value, torch.Tensor):
            signature[name] = "*" + DTYPES[str(value.dtype).removeprefix("torch.")].language
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i32"
    return ast_to_ttir(kernel, signature, constexprs)


def check(
    kernel: JITFunction, grid: Sequence[int], *arguments: Any, rtol: float = 0.0, atol: float = 0.0, **constexprs: Any
) -> None:
    """Fails where a level's result differs from the interpreter's by more than the tolerances; NaN equals NaN."""
    expected = [value.clone() if isinstance(value, torch.Tensor) else value for value in arguments]
    launch(ttir_of(kernel, arguments, constexprs), grid, expected)
    padded = (*grid, 1, 1)[:3]
    for level in levels_here():
        actual = [value.clone() if isinstance(value, torch.Tensor) else value for value in arguments]
        module = optimise_ttir(ttir_of(kernel, arguments, constexprs))
        loaded_object(compile_ttir(module, Target.parse(f"cpu:{level}"), Options())).launch(padded, actual)
        for index, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
            if isinstance(ours, torch.Tensor):
                message = f"{kernel.__name__} at {level}, argument {kernel.arg_names[index]}"
                torch.testing.assert_close(
                    ours, theirs, rtol=rtol, atol=atol, equal_nan=True, msg=lambda text, m=message: f"{m}: {text}"
                )
