"""Kernels in the Triton language, with atomics, random numbers, pointers in memory, and each of their configs, on the emulator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from benchmarks import same_source
from benchmarks.measure import OURS, Case
from kernelpack.kernel.jit import JITFunction
from kernelpack.simt import Emulator

CASES = same_source.cases("cpu", quick=True)
QUICK = ("softmax", "rope", "layer_norm_backward", "matmul_split_k", "matmul_grouped fp16", "attention bf16 1x2x256x64xTrue")


def _configs(case: Case) -> int:
    """Returns how many configs the kernel of a case has that has most."""
    problem, kernels = same_source.problem_of(case), same_source.load_kernels(OURS)
    return max(len(getattr(kernels, launch.kernel).configs) for launch in problem.launches(*problem.inputs()))


def _choices() -> Iterator[Any]:
    for case in CASES:
        for target in ("cuda:sm_80", "cuda:sm_90a"):
            for number in range(_configs(case)):
                quick = number == 0 and target == "cuda:sm_90a" and case.name.startswith(QUICK)
                yield pytest.param(
                    case, target, number, id=f"{case.name} {target} {number}", marks=[] if quick else [pytest.mark.slow]
                )


@pytest.mark.parametrize(("case", "target", "number"), list(_choices()))
def test_results_are_those_of_torch(case: Case, target: str, number: int) -> None:
    problem, kernels = same_source.problem_of(case), same_source.load_kernels(OURS)
    tensors = problem.inputs()
    if problem.before is not None:
        problem.before(*tensors)
    for launch in problem.launches(*tensors):
        kernel: Any = getattr(kernels, launch.kernel)
        config = kernel.configs[min(number, len(kernel.configs) - 1)]
        while not isinstance(kernel, JITFunction):
            kernel = kernel.fn
        with Emulator(target, reachable=_flat(tensors)):
            kernel[launch.grid](*launch.args, **launch.kwargs, **config.all_kwargs())
    result, expected = problem.result(*tensors), problem.reference(*tensors)
    for got, wanted in zip(_flat(result), _flat(expected), strict=True):
        scale = float(wanted.abs().max())
        torch.testing.assert_close(got.double(), wanted.double(), rtol=1e-2, atol=1e-2 * scale)


def _flat(value: Any) -> list[torch.Tensor]:
    """Returns the tensors in nested lists and tuples."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for inner in value for tensor in _flat(inner)] if isinstance(value, (list, tuple)) else []
