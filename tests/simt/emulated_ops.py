"""Runs ops on the emulator: their host functions in Python, their kernels as the CUDA backend compiles them for a target."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from kernelpack.backends.base import Options
from kernelpack.backends.cuda import CUDABackend
from kernelpack.frontend.jit import JITFunction
from kernelpack.opgen import op as op_module
from kernelpack.opgen.config import VariantPoint
from kernelpack.opgen.kernels import kernel_parameters
from kernelpack.runtime.specialization import Specialization, specialize
from kernelpack.simt import SCHEDULES, Program, Removable, Schedule
from kernelpack.simt.compile import compile_program
from kernelpack.target import Target

PROGRAMS = 2
"""Programs of persistent kernels, so that each walks over several blocks of small tensors."""
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


class OnGPU(torch.Tensor):
    """A tensor in the CPU's memory that host functions take for a GPU's."""

    is_cuda = True  # type: ignore[assignment]


@dataclass(frozen=True)
class Run:
    """A launch that an op made, with the tensors as they were before and behind it."""

    program: Program
    grid: tuple[int, ...]
    values: Sequence[Any]
    before: Sequence[torch.Tensor]
    after: Sequence[torch.Tensor]

    def again(self, schedule: Schedule, without: Removable | None = None) -> bool:
        """Runs it once more; returns whether the tensors are what they were behind the first run."""
        tensors = [value for value in self.values if isinstance(value, torch.Tensor)]
        for tensor, start in zip(tensors, self.before, strict=True):
            _bytes(tensor).copy_(_bytes(start))
        self.program.run(self.grid, self.values, schedule=schedule, without=without)
        return all(torch.equal(_bytes(tensor), _bytes(end)) for tensor, end in zip(tensors, self.after, strict=True))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor's storage, between its first and last element, as bytes."""
    size = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True)) if tensor.numel() else 0
    return tensor.as_subclass(torch.Tensor).as_strided((size,), (1,)).view(torch.uint8)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    size = _bytes(tensor).numel() // tensor.element_size()
    flat = tensor.as_subclass(torch.Tensor).as_strided((size,), (1,)).clone()
    return flat.as_strided(tensor.shape, tensor.stride())


@functools.cache
def _program(fn: JITFunction, special: Specialization, target: Target, options: Options) -> Program:
    return compile_program(fn, special, target, options)


@contextmanager
def emulated(target: str) -> Iterator[list[Run]]:
    """Within the context, ops run on the emulator, in every schedule; yields what they launched."""
    backend = CUDABackend()
    resolved = backend.resolve_target(Target.parse(target))
    runs: list[Run] = []

    def launch(bound: Any, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        by_name = {**dict(zip((p.name for p in kernel_parameters(bound.kernel)), args, strict=False)), **kwargs}
        divisible = next((one.divisible for one in bound.op.specialize), ())
        specialized = all(_is_aligned(name, value, divisible) for name, value in by_name.items())
        with pytest.MonkeyPatch.context() as patch:  # as the built op would choose its variant
            patch.setattr(op_module, "VariantPoint", functools.partial(VariantPoint, specialized=specialized))
            given = {**kwargs, **bound._bound(args, kwargs)}
        if 0 < given.get("PROGRAMS", 0) < 1024:
            given["PROGRAMS"] = PROGRAMS
        options = Options(**{name: given.pop(name) for name in _OPTIONS if name in given})
        names = [parameter.name for parameter in kernel_parameters(bound.kernel)]
        arguments = {
            **{p.name: p.default for p in bound.fn.params if p.has_default},
            **dict(zip(names, args, strict=False)),
            **given,
        }
        special, values = specialize(bound.fn, arguments, backend)
        size = tuple(grid(arguments)) if callable(grid) else tuple(grid)
        if 0 in size:
            return
        program = _program(bound.fn, special, resolved, options)
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        before = [_copy(tensor) for tensor in tensors]
        program.run(size, values, schedule=SCHEDULES[0])
        run = Run(program, size, values, before, [_copy(tensor) for tensor in tensors])
        for schedule in SCHEDULES[1:]:
            assert run.again(schedule), f"{bound.fn.__name__}: results depend on the order of threads"
        runs.append(run)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(op_module, "device_target", lambda device: resolved)
        patch.setattr(
            op_module.BoundKernel, "__getitem__",
            lambda self, grid: lambda *args, **kwargs: launch(self, grid, args, kwargs),
        )  # fmt: skip
        yield runs


def _is_aligned(name: str, value: Any, divisible: Sequence[str]) -> bool:
    """Whether a variant that assumes kp.aligned() takes an argument; `divisible` are the parameters that it names, if it names any."""
    if not isinstance(value, torch.Tensor):
        return not (name in divisible if divisible else name.startswith("stride_")) or value % 16 == 0
    inner = [size for size, stride in zip(value.shape, value.stride(), strict=True) if stride == 1]
    return value.data_ptr() % 16 == 0 and all(size % 16 == 0 for size in (*inner, *value.stride()) if size != 1)


def on_gpu(value: Any) -> Any:
    return value.as_subclass(OnGPU) if isinstance(value, torch.Tensor) else value


def call(
    target: str, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], rows: int = 1, given: Mapping[str, Any] | None = None
) -> tuple[Any, list[Run]]:
    """Returns what an op gives on the emulator, and its launches. Programs take `rows` rows in ops that let them take several; `given`
    are names of the op's file to change for this call."""
    names = op._runnable.__globals__  # the copy that the host function runs with
    with pytest.MonkeyPatch.context() as patch, emulated(target) as runs:
        if "rows_per_program" in names:
            # a program takes one row only where the row is one tile
            patch.setitem(names, "rows_per_program", lambda x: 1 if names.get("whole_row", lambda x: 0)(x) else rows)
        for name, value in (given or {}).items():
            assert name in names, f"{op.name} has no {name}"
            patch.setitem(names, name, value)
        result = op(*map(on_gpu, args), **{name: on_gpu(value) for name, value in kwargs.items()})
    return result, runs
