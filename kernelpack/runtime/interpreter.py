"""`with Interpreter()`, or TRITON_INTERPRET=1: kernels that Python launches run on the interpreter of ttir, every access checked."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from kernelpack.backends.cpu.device.driver import CPUDriver
from kernelpack.backends.cpu.facts.features import native_target
from kernelpack.ir.core import Operation
from kernelpack.ir.interpret import launch
from kernelpack.kernel.jit import JITFunction, Launchable
from kernelpack.options import Options
from kernelpack.runtime.front_end import specialized_ttir
from kernelpack.runtime.simulated import SimulatedDriver, SimulatedKernel
from kernelpack.runtime.specialization import Specialization


class Interpreter(SimulatedDriver, CPUDriver):
    """Runs launches one program after the other: `with Interpreter(): kernel[grid](x, y)`.

    Kernels are specialized as on the CPU. Tensors on other devices are copied there and back. Launches raise LaunchError, with
    the program and the user's line, for an access outside the tensors that are the launch's arguments.
    """

    def __init__(self) -> None:
        super().__init__()
        self.emulated_target = native_target()

    def launch(self, kernel: SimulatedKernel, grid: tuple[int, int, int], values: Sequence[Any]) -> None:
        hosted = _Hosted()
        module = _module(kernel.fn, kernel.fn.cache_key, kernel.special, kernel.options)
        launch(module, grid, [hosted.value(value) for value in values])
        hosted.copy_back()


class InterpretedFunction(Launchable):
    """What kernels are in Triton while they are interpreted. Here they stay JITFunctions: there is none of these, and code written for
    Triton asks whether a kernel is one."""


class _Hosted:
    """Tensors as they are in the CPU's memory: those that share memory do so here too."""

    def __init__(self) -> None:
        self._storages: dict[int, tuple[Any, Any]] = {}

    def value(self, value: Any) -> Any:
        import torch

        tensor = getattr(value, "base", value)  # of kernelpack.reinterpret
        if not isinstance(tensor, torch.Tensor) or tensor.device.type == "cpu":
            return tensor
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._storages:
            host = torch.empty(storage.nbytes(), dtype=torch.uint8).untyped_storage()
            self._storages[storage.data_ptr()] = storage, host.copy_(storage)
        _, host = self._storages[storage.data_ptr()]
        return torch.empty(0, dtype=tensor.dtype).set_(host, tensor.storage_offset(), tensor.shape, tensor.stride())

    def copy_back(self) -> None:
        for storage, host in self._storages.values():
            storage.copy_(host)


@functools.cache
def _module(fn: JITFunction, meaning: str, special: Specialization, options: Options) -> Operation:
    """`meaning` changes with what the kernel's source says."""
    return specialized_ttir(fn, special, options)
