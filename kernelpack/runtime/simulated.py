"""Drivers that run kernels in place of their tensors' device: the SIMT emulator, and the interpreter of ttir."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kernelpack.backends.devices import DriverBase
from kernelpack.knobs.hooks import WATCHERS
from kernelpack.runtime.ahead_of_time import ASTSource
from kernelpack.runtime.compile import compile_kernel
from kernelpack.runtime.driver import driver
from kernelpack.runtime.kernel_view import Grid, LaunchableKernel
from kernelpack.target import GPUTarget, Target

if TYPE_CHECKING:
    from kernelpack.compiled import CompiledKernel
    from kernelpack.kernel.jit import JITFunction
    from kernelpack.options import Options
    from kernelpack.runtime.specialization import Specialization

S = TypeVar("S", bound="SimulatedDriver")


class SimulatedDriver(DriverBase):
    """A driver that is active inside of its `with`; launches go through Python then."""

    device_type = "cpu"
    emulated_target: Target

    def __init__(self) -> None:
        self._outer: list[DriverBase | None] = []

    def __enter__(self: S) -> S:
        self._outer.append(driver.replace(self))
        WATCHERS.append(self)
        return self

    def __exit__(self, *problem: object) -> None:
        WATCHERS.remove(self)
        driver.replace(self._outer.pop())

    def simulated(self, fn: JITFunction, special: Specialization, options: Options) -> SimulatedKernel:
        return SimulatedKernel(self, fn, special, options)

    def launch(self, kernel: SimulatedKernel, grid: tuple[int, int, int], values: Sequence[Any]) -> None:
        """Runs a kernel over a grid; `values` are its run-time arguments."""
        raise NotImplementedError

    def get_current_target(self) -> GPUTarget:
        return GPUTarget.of(self.emulated_target)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_benchmarker(self) -> Callable[..., Any]:
        return _time_once


class SimulatedKernel(LaunchableKernel):
    """A kernel that a driver runs in its own way. What it is for the driver's target is compiled when somebody asks for its code or its
    resources."""

    def __init__(self, driver: SimulatedDriver, fn: JITFunction, special: Specialization, options: Options) -> None:
        self.src = ASTSource.of(fn, special)
        self.driver = driver
        self.fn = fn
        self.special = special
        self.options = options

    @functools.cached_property
    def kernel(self) -> CompiledKernel:
        return compile_kernel(self.fn, self.special, self.driver.emulated_target, self.options)

    def launch(self, grid: Grid, values: Sequence[Any], stream: int | None = None) -> None:
        self.driver.launch(self, grid, values)


def _time_once(call: Callable[[], Any], *, quantiles: Sequence[float] = (0.5,), **given: Any) -> list[float]:
    """Calls once: how long a simulation takes says nothing, but each config is checked."""
    started = time.perf_counter()
    call()
    return [1e3 * (time.perf_counter() - started)] * len(quantiles)
