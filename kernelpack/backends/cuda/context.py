"""What travels through the stages of the CUDA backend, and the ways in which it tries to compile a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from kernelpack.backends.cuda.machine.features import Features, features_of
from kernelpack.backends.cuda.machine.gpu import NvidiaGPU
from kernelpack.backends.cuda.schedule.loop_schedule import Products, Schedule
from kernelpack.backends.gpu.machine import Machine
from kernelpack.context import Context
from kernelpack.ir.core import Operation, Value


@dataclass(frozen=True)
class Attempt:
    """One way to compile a kernel."""

    num_stages: int
    """How many iterations of a loop are under way at once."""
    waits_at_once: bool = False
    """Products of warpgroups end where they are issued: an assembler did not follow what ran on."""


@dataclass
class CudaContext(Context):
    """A Context with what the stages of this backend hand on to each other."""

    attempt: Attempt | None = None
    features: Features = field(init=False)
    machine: Machine = field(init=False)
    tensors: Mapping[Value, str] = field(default_factory=dict)
    """The names of the tensors whose descriptors are arguments, by those arguments."""
    authors_products: bool = False
    """Whether the kernel's author wrote asynchronous products: their waits are left as they are."""
    rotated: Mapping[Operation, Products] = field(default_factory=dict)
    """What products of the loops that rotate_products made do, in the function that passes work on."""
    schedule: Schedule = field(default_factory=Schedule)
    """What is decided of the loops of that function."""
    runs_on: bool = False
    """Whether a product runs on that might be waited for at once."""
    is_checked: bool = False
    """Whether another assembler looks at what was assembled: it refuses kernels, and decides nothing about their code."""
    assembler: AbstractContextManager[Any] | None = None
    """What a stage has started for the one after it, which ends it."""

    def __post_init__(self) -> None:
        self.features = features_of(self.target)
        self.machine = NvidiaGPU(self.features)

    @property
    def num_stages(self) -> int:
        return self.options.num_stages if self.attempt is None else self.attempt.num_stages

    @property
    def waits_at_once(self) -> bool:
        return self.attempt is not None and self.attempt.waits_at_once
