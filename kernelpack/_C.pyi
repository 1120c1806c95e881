"""kernelpack._C, from csrc/python/module.cpp."""

from collections.abc import Callable, Sequence
from typing import Any

def launchers() -> list[str]: ...
def add_launcher(library: str) -> None: ...
def runner(
    kernel: LoadedKernel,
    places: Sequence[int],
    count: int,
    watchers: list[Any],
    enter: object,
    exit: object,
    python: Callable[..., Any],
) -> Callable[..., None]: ...

class LoadedKernel:
    def __init__(
        self,
        *,
        backend: str,
        device_type: str,
        name: str,
        entry: str,
        target: str,
        image: int | bytes,
        types: Sequence[str],
        num_warps: int,
        num_ctas: int,
        shared_memory: int,
        program_ns: float,
        descriptors: str = "",
        launch_pdl: bool = False,
        launch_cooperative_grid: bool = False,
    ) -> None: ...
    def load(self, device: int) -> None: ...
    def launch(self, device: int, stream: int, grid: tuple[int, int, int], values: Sequence[Any]) -> None: ...

class JitLauncher:
    def __init__(
        self,
        python: Any,
        names: Sequence[str],
        defaults: Sequence[Any],
        no_default: object,
        constexprs: Sequence[bool],
        options: frozenset[str],
        tests: Sequence[tuple[str, int, Callable[[int], bool]]],
        hooks: list[Any],
    ) -> None: ...
    def clear(self) -> None: ...
    def watch(self, bindings: Sequence[tuple[Callable[[str], Any], str, Any]]) -> None: ...
    def time_key(self, calls: int, *args: Any, **kwargs: Any) -> float: ...
    def binder(self) -> Callable[[Any], Callable[..., Any]]: ...
