"""The kernels that a launcher has compiled, in the form in which Triton keeps them for each device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from kernelpack.compiler.target_backend import TargetBackend
from kernelpack.runtime.device_kinds import make_backend
from kernelpack.runtime.driver import driver
from kernelpack.target import GPUTarget

if TYPE_CHECKING:
    from kernelpack.runtime.launcher import Launcher


class Compiled(MutableMapping[str, Any]):
    """The kernels of a launcher by key; futures of those that threads compile."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    def __getitem__(self, key: str) -> Any:
        return self._known[key]

    def __setitem__(self, key: str, kernel: Any) -> None:
        self._launcher.loaded[key] = kernel

    def __delitem__(self, key: str) -> None:
        del self._launcher.loaded[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    @property
    def _known(self) -> dict[str, Any]:
        return {**self._launcher.pending, **self._launcher.loaded}

    def clear(self) -> None:
        """Drops them: the next launch takes them from disk, or compiles."""
        self._launcher.forget()


Entry = tuple[
    Compiled, dict[Any, str], GPUTarget, TargetBackend, Callable[..., tuple[dict[str, Any], list[Any], dict[str, Any]]]
]


class DeviceCaches(Mapping[int, Entry]):
    """For each device the kernels by key, the keys by call, the target, its backend, and what binds a call's arguments. All devices share the
    kernels: iterating yields the current one, if there are any."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._compiled = Compiled(launcher)

    def __getitem__(self, device: int) -> Entry:
        backend = make_backend(self._launcher.binder.call_target(()))
        return self._compiled, self._launcher.binder.keys, backend.target, backend, self._launcher.binder

    def __iter__(self) -> Iterator[int]:
        return iter((driver.active.get_current_device(),) if self._compiled else ())

    def __len__(self) -> int:
        return 1 if self._compiled else 0

    def clear(self) -> None:
        """Drops all kernels: the next launch takes them from disk, or compiles."""
        self._launcher.forget()
