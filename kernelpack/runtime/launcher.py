"""`kernel[grid](...)`: compiles for the call's specialization on first use, then launches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol

from kernelpack.backends.base import Backend, Options, backends
from kernelpack.compiler import CompiledKernel, compile_ttir, optimise_ttir
from kernelpack.errors import LaunchError
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.frontend.jit import JITFunction
from kernelpack.runtime.specialization import Specialization, specialize
from kernelpack.target import Target


class Loaded(Protocol):
    """A compiled kernel that can be launched."""

    kernel: CompiledKernel

    def launch(self, grid: tuple[int, int, int], values: Sequence[Any]) -> None: ...


_OPTION_NAMES = {field.name for field in fields(Options)}
_MAX_GRID = (2**31 - 1, 65535, 65535)
_loaded: dict[tuple[Any, ...], Loaded] = {}
_lock = threading.Lock()


def launch(fn: JITFunction, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Loaded:
    """Launches a kernel over a grid and returns what was launched.

    `grid` is a tuple of 1 to 3 integers, or a function from the arguments by name to one. Options (`num_warps`, ...) go by
    keyword. The device is that of the first tensor. Raises LaunchError for arguments that do not fit.
    """
    options = Options(**{name: value for name, value in kwargs.items() if name in _OPTION_NAMES and name not in fn.arg_names})
    arguments = _bind(
        fn, args, {name: value for name, value in kwargs.items() if name in fn.arg_names or name not in _OPTION_NAMES}
    )
    backend, target = _device(fn, arguments)
    special, values = specialize(fn, arguments, backend)
    loaded = _load(fn, special, target, options, backend)
    extents = _grid(fn, grid, arguments)
    if 0 not in extents:
        loaded.launch(extents, values)
    return loaded


def compile_kernel(fn: JITFunction, special: Specialization, target: Target, options: Options) -> CompiledKernel:
    """Compiles a kernel for a specialization."""
    module = ast_to_ttir(fn, dict(special.signature), dict(special.constexprs), special.facts)
    return compile_ttir(optimise_ttir(module), target, options, special.facts)


def _bind(fn: JITFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    try:
        bound = fn.signature.bind(*args, **kwargs)
    except TypeError as problem:
        raise LaunchError(
            f"{fn.__name__}: {problem}", location=fn.location, cure=f"it takes {', '.join(fn.arg_names)}"
        ) from None
    bound.apply_defaults()
    return dict(bound.arguments)


def _device(fn: JITFunction, arguments: Mapping[str, Any]) -> tuple[Backend, Target]:
    """Returns the backend of the first tensor's device, and its best target there."""
    device = next((value.device for value in arguments.values() if hasattr(value, "data_ptr")), None)
    kind = device.type if device is not None else "cpu"
    for backend in backends().values():
        if backend.device_type == kind:
            return backend, backend.resolve_target(Target(backend.name, "native"))
    raise LaunchError(f"{fn.__name__}: no backend runs on {kind} tensors", location=fn.location)


def _load(fn: JITFunction, special: Specialization, target: Target, options: Options, backend: Backend) -> Loaded:
    key = (fn.cache_key, special, target, options)
    with _lock:
        if key not in _loaded:
            _loaded[key] = backend.load(compile_kernel(fn, special, target, options))
        return _loaded[key]


def _grid(fn: JITFunction, grid: Any, arguments: Mapping[str, Any]) -> tuple[int, int, int]:
    chosen = grid(arguments) if isinstance(grid, Callable) else grid  # type: ignore[arg-type]
    extents = tuple(chosen) if isinstance(chosen, (tuple, list)) else (chosen,)
    if not 1 <= len(extents) <= 3 or not all(isinstance(extent, int) and extent >= 0 for extent in extents):
        raise LaunchError(f"{fn.__name__}: the grid is {chosen!r}", cure="give 1 to 3 integers that are not negative")
    padded = (*extents, 1, 1)[:3]
    for axis, extent, most in zip("xyz", padded, _MAX_GRID, strict=True):
        if extent > most:
            raise LaunchError(f"{fn.__name__}: grid axis {axis} is {extent}, at most {most} is possible")
    return padded[0], padded[1], padded[2]
