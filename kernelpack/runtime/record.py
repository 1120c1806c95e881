"""KERNELPACK_TRACE=FILE: what launches of kernels need compiled is written to the file, a line each. No data. `kernelpack adopt` reads it."""

from __future__ import annotations

import functools
import json
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import TYPE_CHECKING, Any

from kernelpack import knobs
from kernelpack.backends.installed import backends
from kernelpack.compiler.target_backend import TargetOptions
from kernelpack.errors import KernelpackError
from kernelpack.kernel.jit import JITFunction
from kernelpack.knobs.hooks import WATCHERS
from kernelpack.options import BY_DEFAULT
from kernelpack.runtime.ahead_of_time import ASTSource
from kernelpack.runtime.key_text import as_json
from kernelpack.runtime.specialization import Specializer, specialization_of

if TYPE_CHECKING:
    from kernelpack.runtime.binder import Call

BEGINS = ('{"op": "', '{"kernel": "')
"""What the first line of a record begins with: calls of ops are counted in it by C++ (csrc/ops/trace.cpp), launches of kernels here."""

_written: set[Any] = set()


def start() -> bool:
    """Returns whether launches are recorded; they all go through Python then."""
    asked = bool(knobs.TRACE.get())
    if asked:
        WATCHERS.append(knobs.TRACE)
    return asked


def launched(call: Call, fn: JITFunction, options: TargetOptions) -> None:
    """Notes a launch: what it needs compiled on its own backend, and what the same call would need on the others that serve."""
    for backend in backends().values():
        if backend.driver() is None:
            continue
        try:
            traits = tuple(call.specialization)
            if backend.name != call.target.backend:
                traits, _ = Specializer(fn, backend).traits(call.arguments)
        except KernelpackError:  # what the other one does not take
            continue
        noted = (fn, backend.name, traits, options.plain)
        if noted not in _written:
            _written.add(noted)
            compiled(ASTSource.of(fn, specialization_of(fn, traits)), backend.name, options)


def compiled(source: ASTSource, backend: str, options: TargetOptions) -> None:
    """Notes what was asked to be compiled."""
    try:
        _write(line_of(source, backend, options))
    except TypeError as problem:
        _write({**identity(source.fn), "backend": backend, "refused": str(problem)})


def searched(fn: JITFunction, key: Sequence[Any], config: Mapping[str, Any]) -> None:
    """Notes which config, as `config_of` has it, a search chose for a key."""
    _write({**identity(fn), "search": [repr(part) for part in key], "config": dict(config)})


def config_of(values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns a config's values by name, in the form that constants have in a line; None where one cannot be written down."""
    try:
        return {name: as_json(value) for name, value in values.items()}
    except TypeError:
        return None


def line_of(source: ASTSource, backend: str, options: TargetOptions) -> dict[str, Any]:
    """Returns what a line says of a kernel that is to be compiled. Raises TypeError for a constant that cannot be written down."""
    given = {name: value for name, value in vars(options.plain).items() if value != getattr(BY_DEFAULT, name)}
    return {
        **identity(source.fn),
        "backend": backend,
        "signature": source.signature,
        "constants": [[list(path), as_json(value)] for path, value in source.constants.items()],
        "facts": [[list(path), found] for path, found in source.attrs.items()],
        "options": given,
    }


def identity(fn: JITFunction) -> dict[str, Any]:
    """Returns the name of a kernel, where it comes from, and the digest of its source and of what it calls."""
    module = fn.module
    if module == "__main__":  # of `python -m package.module`, the module
        module = getattr(getattr(sys.modules.get(module), "__spec__", None), "name", module)
    package, number = _package(module)
    return {
        "kernel": f"{module}:{fn.fn.__qualname__}",
        "package": package,
        "version": number,
        "source": fn.cache_key,
        "file": os.path.abspath(fn.file),
    }


@functools.cache
def _package(module: str) -> tuple[str | None, str | None]:
    """Returns the installed package that a module belongs to, and its version."""
    owners = _owners().get(module.partition(".")[0])
    try:
        return (owners[0], version(owners[0])) if owners else (None, None)
    except PackageNotFoundError:
        return None, None


@functools.cache
def _owners() -> Mapping[str, list[str]]:
    return packages_distributions()


def _write(said: Mapping[str, Any]) -> None:
    text = json.dumps(said)
    if text in _written:
        return
    _written.add(text)
    path = knobs.TRACE.get()
    try:
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            begin = os.pread(file, len(BEGINS[1]), 0).decode(errors="replace")
            if begin and not begin.startswith(BEGINS):
                raise OSError("it holds something else; name a new file")
            os.write(file, f"{text}\n".encode())
        finally:
            os.close(file)
    except OSError as problem:
        warnings.warn(
            f"launches cannot be written to {knobs.TRACE.name}={path}: {problem.strerror or problem}",
            RuntimeWarning,
            stacklevel=2,
        )
