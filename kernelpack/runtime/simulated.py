"""Drivers that run kernels in place of their tensors' device: the SIMT emulator, and the interpreter of ttir."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kernelpack.backends.compiler import GPUTarget
from kernelpack.knobs.hooks import WATCHERS
from kernelpack.runtime.driver import DriverBase, driver
from kernelpack.target import Target

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

    def get_current_target(self) -> GPUTarget:
        return GPUTarget.of(self.emulated_target)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_benchmarker(self) -> Callable[..., Any]:
        return _time_once


def _time_once(call: Callable[[], Any], *, quantiles: Sequence[float] = (0.5,), **given: Any) -> list[float]:
    """Calls once: how long a simulation takes says nothing, but each config is checked."""
    started = time.perf_counter()
    call()
    return [1e3 * (time.perf_counter() - started)] * len(quantiles)
