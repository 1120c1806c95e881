"""A launch of a kernel with what it must leave in memory, by name in tables of cases."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelpack.backends.cuda import CUDABackend
from kernelpack.compiled import CompiledKernel
from kernelpack.kernel.jit import JITFunction
from kernelpack.options import Options
from kernelpack.runtime.compile import compile_kernel
from kernelpack.runtime.specialization import Specialization, specialize
from kernelpack.target import Target


@dataclass(frozen=True)
class Launch:
    """One launch: `arguments` by the kernel's parameter names, `expected` the tensors that it leaves in some of them.

    An error may be `tolerance` times the largest expected magnitude of its tensor, and as much relative to the element;
    0 asks for equality.
    """

    fn: JITFunction
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    expected: Mapping[str, torch.Tensor]
    tolerance: float = 0.0
    options: Options = field(default_factory=Options)

    def specialize(self) -> tuple[Specialization, list[Any]]:
        return specialize(
            self.fn, {param.name: self.arguments.get(param.name, param.default) for param in self.fn.params}, CUDABackend()
        )

    def compile(self, target: str) -> CompiledKernel:
        special, _ = self.specialize()
        return compile_kernel(self.fn, special, Target.parse(target), self.options)

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Fails unless the tensors among `arguments` hold what is expected."""
        for name, wanted in self.expected.items():
            got, wanted = arguments[name].cpu().double(), wanted.double()
            finite = wanted[wanted.isfinite()]
            scale = float(finite.abs().max()) if finite.numel() else 0.0
            torch.testing.assert_close(got, wanted, rtol=self.tolerance, atol=self.tolerance * scale, equal_nan=True)


def fresh(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Returns memory to be written, filled with what nobody computes."""
    return torch.full(shape, float("nan") if dtype.is_floating_point else 119, dtype=dtype)


@dataclass(frozen=True)
class Case:
    """A named launch, made when it is needed. What is `small` takes the emulator less than a second or so."""

    name: str
    make: Callable[[], Launch]
    small: bool = True

    def launch(self) -> Launch:
        torch.manual_seed(zlib.crc32(self.name.encode()))
        return self.make()


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Returns normally distributed floats, or small integers."""
    if dtype.is_floating_point:
        return torch.randn(*shape).to(dtype)
    return torch.randint(-50, 50, shape).to(dtype)


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


EPSILON = {torch.float64: 1e-13, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2}
"""By dtype, how far a result may be off that is rounded once at its end."""
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
