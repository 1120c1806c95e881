"""The backends of this installation: kernelpack's own, and those that packages offer by the entry point "kernelpack.backends"."""

from __future__ import annotations

import functools
from importlib.metadata import entry_points

from kernelpack import knobs
from kernelpack.backends.base import Backend
from kernelpack.errors import OptionError, TargetError
from kernelpack.target import Target


@functools.cache
def backends() -> dict[str, Backend]:
    """Returns every installed backend by name, the built-in ones first."""
    from kernelpack.backends.cpu import CPUBackend  # late: they need LLVM, which stating an op does not
    from kernelpack.backends.cuda import CUDABackend

    found: dict[str, Backend] = {builtin.name: builtin for builtin in (CPUBackend(), CUDABackend())}
    for entry in entry_points(group="kernelpack.backends"):
        try:
            backend = entry.load()()
        except Exception as problem:  # of another's package
            package = entry.dist.name if entry.dist is not None else entry.value
            raise TargetError(
                f"backend {entry.name!r} of the package {package} cannot be used: {problem}",
                cure=f"update {package} to one for this version of kernelpack, or uninstall it",
            ) from problem
        found[backend.name] = backend
    return found


def native_target(backend: Backend) -> Target:
    """Returns the target that this machine's device of a backend runs best, for CPUs the one that KERNELPACK_CPU_TARGET asks for.
    Raises OptionError where the CPU does not run that."""
    forced = knobs.CPU_TARGET.get()
    if backend.name != "cpu" or not forced:
        return backend.resolve_target(Target(backend.name, "native"))
    levels = {str(target): target for device in backend.devices() for target in device.targets}
    if forced not in levels:
        raise OptionError(
            f"{knobs.CPU_TARGET.name}={forced} is no target that this CPU runs",
            cure=f"set it to one of {', '.join(levels)}, or unset it",
        )
    return levels[forced]


def backend_of(target: Target) -> Backend:
    """Returns the backend that builds a target. Raises TargetError."""
    known = backends()
    if target.backend not in known:
        raise TargetError(
            f"no backend is called {target.backend!r} (target {target})",
            cure=f"use one of {', '.join(sorted(known))}, or install the package that provides it",
        )
    return known[target.backend]
