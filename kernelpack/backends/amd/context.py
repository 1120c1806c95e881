"""What travels through the stages of the AMD backend."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelpack.backends.amd.machine import AMDGPU, machine_of
from kernelpack.context import Context


@dataclass
class AmdContext(Context):
    """A Context with the machine, and what LLVM makes beside the assembly that people read."""

    machine: AMDGPU = field(init=False)
    object: bytes = b""
    """The relocatable object of the assembly."""

    def __post_init__(self) -> None:
        self.machine = machine_of(self.target)
