"""What the emulator makes of kernels, for a GPU to be held to: `python -m tests.gpu.emulated FOLDER` on a machine without one."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from kernelpack.backends.cuda.assemble.ptx_to_cubin import assemble
from kernelpack.compiled import CompiledKernel, Parameter
from kernelpack.simt import Program
from tests.backends.cuda.cases import cases
from tests.backends.cuda.elementwise import KINDS, Elementwise
from tests.backends.cuda.launch import Launch
from tests.simt.hopper_kernels import LAUNCHES
from tests.simt.instruction_launches import ADA, INSTRUCTIONS

TARGET = "cuda:sm_90a"
EXACT = (
    "add-",
    "copy-",
    "transpose-",
    "rearrange-",
    "integers-",
    "reduce-",
    "histogram-int32",
    "tickets",
    "matmul-int8",
    "shift",
)
"""Kernels of loads, stores, integers and single IEEE operations: every bit must agree."""


@dataclass(frozen=True)
class Emulated:
    """A kernel for a GPU, its arguments before the launch, and what the emulator leaves in its tensors.

    `bounds` says by how much each tensor's elements may differ from the GPU's; None: not at all.
    """

    name: str
    entry: str
    image: bytes
    parameters: Sequence[Parameter]
    descriptors: Sequence[str]
    metadata: Mapping[str, Any]
    grid: tuple[int, ...]
    values: Sequence[Any]
    after: Sequence[torch.Tensor]
    bounds: Sequence[torch.Tensor] | None


def compiled(name: str) -> CompiledKernel:
    """Compiles a launch for the GPU; PTX of another architecture is assembled for it."""
    if name.startswith("elementwise-"):
        return _table(name).compile(TARGET)
    if name not in ADA:
        return launches()[name]().compile(TARGET)
    kernel = launches()[name]().compile("cuda:sm_89")
    return replace(kernel, image=assemble(str(kernel.stages["ptx"]), "sm_90").image)


def emulate(name: str) -> Emulated:
    """Compiles a launch and runs it on the emulator."""
    kernel = compiled(name)
    bounds: list[torch.Tensor] | None = None
    if name.startswith("elementwise-"):
        grid: tuple[int, ...] = (1,)
        after, before = _run(kernel, grid, [torch.from_numpy(array) for array in _table(name).memory()])
    else:
        torch.manual_seed(1)
        launch = launches()[name]()
        grid = launch.grid
        _, values = launch.specialize()
        after, before = _run(kernel, grid, values)
        if name in INSTRUCTIONS:  # relative to each element, with a unit for the rounding of what the emulator computed
            error = launch.tolerance and launch.tolerance + 2.0**-23
            bounds = [error * end.double().abs().nan_to_num() for end in after]
        elif not name.startswith(EXACT):
            bounds = [_bound(launch, value, end) for value, end in zip(_tensors(values), after, strict=True)]
    made = kernel.entry, kernel.image, kernel.parameters, kernel.descriptors, kernel.metadata
    return Emulated(name, *made, grid, before, after, bounds)


def launches() -> dict[str, Callable[[], Launch]]:
    """Returns the launches of the CUDA backend's table that are small, those of kernels for Hopper, and of single instructions."""
    return {case.name: case.launch for case in cases() if case.small} | LAUNCHES | INSTRUCTIONS | ADA


def names() -> list[str]:
    return [*launches(), *(f"elementwise-{kind}" for kind in KINDS)]


def _table(name: str) -> Elementwise:
    return next(Elementwise(kind) for kind in KINDS if f"elementwise-{kind}" == name)


def _run(kernel: CompiledKernel, grid: Sequence[int], values: Sequence[Any]) -> tuple[list[torch.Tensor], list[Any]]:
    """Returns the tensors after a launch, and all values before it."""
    before = [_copy(value) if isinstance(value, torch.Tensor) else value for value in values]
    figures = kernel.metadata
    names = [parameter.name for parameter in kernel.parameters]
    program = Program(kernel.stages["llir"], figures["threads"], figures["shared"], names, kernel.descriptors)
    program.run(grid, values)
    return [_copy(tensor) for tensor in _tensors(values)], before


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    return [value for value in values if isinstance(value, torch.Tensor)]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy of the same strides."""
    size = 1 + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((size,), (1,)).clone().as_strided(tensor.shape, tensor.stride())


def _bound(launch: Launch, tensor: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Products: (K / 8) 2^-23 sum |a| |b|, for a tensor core adds 8 or more products at a time and cuts bits off, and one unit in
    the last place for the rounding of the result. Others: the table's tolerance, once for the emulator and once for the GPU."""
    if not tensor.is_floating_point():
        return torch.zeros_like(after)
    unit = torch.finfo(tensor.dtype).eps * after.double().abs().nan_to_num()
    given = launch.arguments
    if {"a", "b", "c"} <= set(given) and given["a"].dim() == 2 and given["a"].is_floating_point():
        a, b = given["a"].double().abs(), given["b"].double().abs()
        b = b.T if b.shape[0] != a.shape[1] or given.get("TRANSPOSED") else b
        return (unit + a.shape[1] / 8 * 2.0**-23 * (a @ b)).to(torch.float64) if after.shape == (a @ b).shape else unit
    finite = after.double()[after.double().isfinite()]
    scale = float(finite.abs().max()) if finite.numel() else 0.0
    return unit + 2 * launch.tolerance * scale


def _write(folder: Path, name: str) -> str:
    made = emulate(name)
    torch.save(vars(made), folder / f"{name}.pt")  # a dict: this module may be __main__
    return name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-j", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(arguments.j) as pool:
        done = list(pool.map(_write, [arguments.folder] * len(names()), names()))
    print(f"{len(done)} kernels")


if __name__ == "__main__":
    main()
