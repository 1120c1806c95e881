"""Runs ops on the emulator: their host functions in Python, their kernels as the CUDA backend compiles them for a target."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from kernelpack.kernel.jit import JITFunction
from kernelpack.opgen import op as op_module
from kernelpack.opgen.op import BoundKernel, _flat
from kernelpack.opgen.stated.config import VariantPoint
from kernelpack.opgen.stated.kernels import kernel_parameters
from kernelpack.simt import SCHEDULES, Emulator, Program, Removable, Schedule
from kernelpack.simt.emulator import as_bytes, copied, put_back

PROGRAMS = 2
"""Programs of persistent kernels, so that each walks over several blocks of small tensors."""


@dataclass(frozen=True)
class Run:
    """A launch that an op made, with the tensors as they were before and after it."""

    program: Program
    grid: Sequence[int]
    values: Sequence[Any]
    before: Sequence[torch.Tensor]
    after: Sequence[torch.Tensor]

    def again(self, schedule: Schedule, without: Removable | None = None) -> bool:
        """Runs it once more; returns whether the tensors are what they were after the first run."""
        tensors = [value for value in self.values if isinstance(value, torch.Tensor)]
        put_back(tensors, self.before)
        self.program.run(self.grid, self.values, schedule=schedule, without=without)
        return all(torch.equal(as_bytes(tensor), as_bytes(end)) for tensor, end in zip(tensors, self.after, strict=True))


class Recorder(Emulator):
    """Keeps what was launched. Results must not depend on the schedule."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.runs: list[Run] = []

    def run(self, program: Program, grid: Sequence[int], values: Sequence[Any]) -> None:
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        before = [copied(tensor) for tensor in tensors]
        program.run(grid, values, schedule=SCHEDULES[0])
        run = Run(program, grid, values, before, [copied(tensor) for tensor in tensors])
        for schedule in SCHEDULES[1:]:
            assert run.again(schedule), f"{program.names}: results depend on the order of threads"
        self.runs.append(run)


@contextmanager
def emulated(target: str) -> Iterator[list[Run]]:
    """Within the context, ops run on the emulator with the configs of the variants that the built op would choose; yields what they
    launched."""
    config = BoundKernel._bound

    def chosen(bound: BoundKernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        by_name = _flat({**dict(zip((p.name for p in kernel_parameters(bound.kernel)), args, strict=False)), **kwargs})
        divisible = [name.replace(".", "_") for one in bound.op.specialize[:1] for name in one.divisible]
        specialized = all(_is_aligned(name, value, divisible) for name, value in by_name.items())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(op_module, "VariantPoint", functools.partial(VariantPoint, specialized=specialized))
            found = config(bound, args, kwargs)
        return found | ({"PROGRAMS": PROGRAMS} if 0 < found.get("PROGRAMS", 0) < 1024 else {})

    with pytest.MonkeyPatch.context() as patch, Recorder(target) as recorder:
        patch.setattr(BoundKernel, "_bound", chosen)
        yield recorder.runs


def _is_aligned(name: str, value: Any, divisible: Sequence[str]) -> bool:
    """Whether a variant that assumes kp.aligned() takes an argument; `divisible` are the parameters that it names, if it names any."""
    if not isinstance(value, torch.Tensor):
        counts = name in divisible if divisible else name.startswith(("stride_", "strides_"))
        return not counts or value is None or value % 16 == 0
    inner = [size for size, stride in zip(value.shape, value.stride(), strict=True) if stride == 1]
    return value.data_ptr() % 16 == 0 and all(size % 16 == 0 for size in (*inner, *value.stride()) if size != 1)


def call(
    target: str, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], rows: int = 1, given: Mapping[str, Any] | None = None
) -> tuple[Any, list[Run]]:
    """Returns what an op gives on the emulator, and its launches. Programs take `rows` rows in ops that let them take several; `given`
    are names to change for this call, of the op's file or of those whose functions it calls."""
    names = op._runnable.__globals__  # the copy that the host function runs with
    with pytest.MonkeyPatch.context() as patch, emulated(target) as runs:
        modules = [names, *(called.__globals__ for called in names.values() if inspect.isfunction(called))]
        for module in modules:
            own = module.get("rows_of")
            if own and not isinstance(own, JITFunction):  # kernels of paged_attention have one, too

                def taken(x: Any, sizes: Sequence[int], own: Any = own, module: Mapping[str, Any] = module) -> Any:
                    """A program takes one row only where the row is one tile."""
                    return own(x, sizes)._replace(per_program=1 if module.get("whole_row", lambda x: 0)(x) else rows)

                if own.__name__ != taken.__name__:
                    patch.setitem(module, "rows_of", taken)
        for name, value in (given or {}).items():
            patch.setitem(next(module for module in modules if name in module), name, value)
        result = op(*args, **kwargs)
    return result, runs
