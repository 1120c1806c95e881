"""`with Emulator("cuda:sm_90a")`: kernels that Python launches, and ops that it calls, run on the emulator as if on a GPU."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from kernelpack.backends.cuda.machine.features import ARCHITECTURES, LANES, features_of
from kernelpack.backends.cuda.machine.roles import REGISTERS
from kernelpack.backends.installed import backend_of
from kernelpack.compiler.target_backend import inspection
from kernelpack.errors import LaunchError
from kernelpack.kernel.jit import JITFunction
from kernelpack.options import Options
from kernelpack.runtime.simulated import SimulatedDriver, SimulatedKernel
from kernelpack.runtime.specialization import Specialization
from kernelpack.simt.compile import compile_program
from kernelpack.simt.launch import SCHEDULES, Program
from kernelpack.simt.memory import span_of
from kernelpack.target import Target

MULTIPROCESSORS = 2
"""Of the GPU that host code asks about: programs that walk over blocks get several of them."""


def emulated_targets() -> list[str]:
    """Returns the targets whose kernels it runs."""
    return [f"cuda:{name}" for name in ARCHITECTURES]


class OnGPU(torch.Tensor):
    """A tensor in the CPU's memory that host functions take for a GPU's."""

    is_cuda = True


class Emulator(SimulatedDriver):
    """Runs launches of a CUDA target on the emulator: `with Emulator("cuda:sm_90a"): kernel[grid](x, y)`.

    Tensors lie in the CPU's memory. Every launch runs twice, in two orders of threads, with asynchronous operations that complete
    as late as they may and as early. `reachable` are tensors whose addresses kernels find in memory, or whose views they are
    given and leave. Launches raise EmulationError for the first thing that is wrong, and UnsupportedError for a machine operation
    that is not modelled.
    """

    def __init__(self, target: str = "cuda:sm_90a", *, reachable: Sequence[torch.Tensor] = ()) -> None:
        super().__init__()
        wanted = Target.parse(target)
        self.emulated_target = backend_of(wanted).resolve_target(wanted)
        self.features = features_of(self.emulated_target)
        self.reachable = tuple(reachable)

    # ---- launches ----

    def launch(self, kernel: SimulatedKernel, grid: tuple[int, int, int], values: Sequence[Any]) -> None:
        fn, special = kernel.fn, kernel.special
        values = [getattr(value, "base", value) for value in values]  # of kernelpack.reinterpret
        for name, value in zip((name for name, _ in special.signature), values, strict=False):
            if isinstance(value, torch.Tensor) and value.device.type != "cpu":
                raise LaunchError(
                    f"{fn.__name__}: the emulator runs on tensors of the CPU, {name} is on {value.device}",
                    location=fn.location,
                    cure="make the tensors with device='cpu'",
                )
        self.run(_program(fn, (fn.cache_key, *inspection()), special, self.emulated_target, kernel.options), grid, values)

    def run(self, program: Program, grid: Sequence[int], values: Sequence[Any]) -> None:
        """Runs a kernel in every schedule, each from the tensors as they are now."""
        tensors = [value for value in (*values, *self.reachable) if isinstance(value, torch.Tensor)]
        before = [copied(tensor) for tensor in tensors]
        for number, schedule in enumerate(SCHEDULES):
            if number:
                put_back(tensors, before)
            program.run(grid, values, schedule=schedule, reachable=self.reachable)

    def host_value(self, value: Any) -> Any:
        return value.as_subclass(OnGPU) if isinstance(value, torch.Tensor) else value

    # ---- what host code asks ----

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        return divmod(self.features.number, 10)

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        return {
            "multiprocessor_count": MULTIPROCESSORS,
            "max_shared_mem": self.features.shared_bytes,
            "max_num_regs": REGISTERS,
            "warpSize": LANES,
        }


@functools.cache
def _program(fn: JITFunction, meaning: tuple[str, ...], special: Specialization, target: Target, options: Options) -> Program:
    """`meaning` changes with what the kernel's source says, and with what a hook makes of it."""
    return compile_program(fn, special, target, options)


# ---- memory ----


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor's storage, between its first and last element, as bytes. Autograd sees no writes there, as it sees no kernel's."""
    size = span_of(tensor) // tensor.element_size()
    return tensor.data.as_subclass(torch.Tensor).as_strided((size,), (1,)).view(torch.uint8)


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy of the same strides."""
    flat = as_bytes(tensor).clone().view(tensor.dtype)
    return flat.as_strided(tensor.shape, tensor.stride())


def put_back(tensors: Sequence[torch.Tensor], copies: Sequence[torch.Tensor]) -> None:
    """Makes tensors what their copies are."""
    for tensor, start in zip(tensors, copies, strict=True):
        as_bytes(tensor).copy_(as_bytes(start))
