"""The backends of this installation: kernelpack's own, and those that packages offer by the entry point "kernelpack.backends"."""

from __future__ import annotations

import functools
from importlib.metadata import EntryPoint, entry_points

from kernelpack.backends.base import Backend
from kernelpack.backends.devices import DriverBase
from kernelpack.errors import TargetError
from kernelpack.target import Target

GROUP = "kernelpack.backends"
BUILT_IN = (
    EntryPoint("cpu", "kernelpack.backends.cpu:CPUBackend", GROUP),
    EntryPoint("cuda", "kernelpack.backends.cuda:CUDABackend", GROUP),
    EntryPoint("amdgpu", "kernelpack.backends.amd:AMDBackend", GROUP),
)
"""Imported when backends are asked for: they need LLVM, which stating an op does not."""
DRIVERS = (
    EntryPoint("cpu", "kernelpack.backends.cpu.device.driver:CPUDriver", GROUP),
    EntryPoint("cuda", "kernelpack.backends.cuda.device.host_driver:CUDADriver", GROUP),
)
"""What the built-in backends give as their drivers. Each process of an engine asks which is active; few of them compile."""


@functools.cache
def backends() -> dict[str, Backend]:
    """Returns every installed backend by name, the built-in ones first."""
    return {backend.name: backend for entry in (*BUILT_IN, *entry_points(group=GROUP)) for backend in (_loaded(entry),)}


@functools.cache
def _loaded(entry: EntryPoint) -> Backend:
    try:
        backend: Backend = entry.load()()
    except Exception as problem:
        if entry in BUILT_IN:
            raise
        package = entry.dist.name if entry.dist is not None else entry.value
        raise TargetError(
            f"backend {entry.name!r} of the package {package} cannot be used: {problem}",
            cure=f"update {package} to one for this version of kernelpack, or uninstall it",
        ) from problem
    return backend


def backend_of(target: Target) -> Backend:
    """Returns the backend that builds a target. Raises TargetError."""
    known = backends()
    if target.backend not in known:
        raise TargetError(
            f"no backend is called {target.backend!r} (target {target})",
            cure=f"use one of {', '.join(sorted(known))}, or install the package that provides it",
        )
    return known[target.backend]


def backend_for_device(kind: str) -> Backend | None:
    """Returns the backend whose kernels run on a type of torch's devices unless a target says otherwise: the first that has a driver
    for them. None where no backend has."""
    serving = (backend for backend in backends().values() if (driver := backend.driver()) and driver.device_type == kind)
    return next(serving, None)


def drivers() -> list[type[DriverBase]]:
    """Returns the drivers of all backends that have one."""
    others = (_loaded(entry).driver() for entry in entry_points(group=GROUP))
    return [*(entry.load() for entry in DRIVERS), *(driver for driver in others if driver is not None)]
