"""Kernels that earlier processes compiled for launches from Python, kept in the cache folder."""

from __future__ import annotations

import contextlib
import enum
import hashlib
import json
import pickle
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelpack import knobs
from kernelpack.backends.base import Options
from kernelpack.backends.installed import backend_of
from kernelpack.compiler import CompiledKernel, source_hash
from kernelpack.frontend.dependencies import lines_of
from kernelpack.frontend.expressions import is_constructor
from kernelpack.frontend.jit import JITFunction
from kernelpack.language.types import dtype
from kernelpack.runtime.cache import CacheManager, get_cache_manager
from kernelpack.runtime.specialization import Specialization
from kernelpack.target import Target

_FILE = "kernel.pickle"
"""The SHA-256 of a pickled kernel, and the kernel: nothing else tells whether machine code is what was written."""


class KernelCache:
    """The place of one compiled kernel: named by the hash of everything that decides what is compiled."""

    def __init__(self, fn: JITFunction, special: Specialization, target: Target, options: Options) -> None:
        constexprs = _text(value for _, value in special.constexprs)
        backend = backend_of(target)
        self.options = options
        decisive = replace(options, **{name: getattr(Options, name) for name in backend.unused_options})
        self.path: str | None = None
        self._manager: CacheManager | None = None
        if knobs.cache_dir() is None or constexprs is None:
            return
        parts = [
            source_hash(),
            json.dumps(dict(backend.tool_versions()), sort_keys=True),
            fn.cache_key,
            fn.symbol(dict(special.signature), dict(special.constexprs)),
            lines_of(fn) if backend.line_information else "",
            repr((special.signature, [name for name, _ in special.constexprs], special.facts, str(target), decisive)),
            constexprs,
        ]
        self._manager = get_cache_manager(hashlib.sha256("\0".join(parts).encode()).hexdigest())

    def load(self) -> CompiledKernel | None:
        """Returns the kernel, or None where it was never compiled, or its file does not read."""
        if self._manager is None:
            return None
        try:
            self.path = self._manager.get_file(_FILE)
            kernel = None if self.path is None else _checked(Path(self.path).read_bytes())
        except Exception:  # cut short by a full disk, altered, of another Python, on a server that is away: compile again
            return None
        return replace(kernel, options=self.options) if isinstance(kernel, CompiledKernel) else None

    def save(self, kernel: CompiledKernel) -> None:
        """Keeps a kernel. A place that cannot be written is no reason to fail: the next process compiles again."""
        if self._manager is not None:
            with contextlib.suppress(Exception):
                pickled = pickle.dumps(kernel)
                self.path = self._manager.put(hashlib.sha256(pickled).digest() + pickled, _FILE)


def _checked(data: bytes) -> Any:
    """Returns what a file holds. Raises ValueError where it was cut or altered."""
    size = hashlib.sha256().digest_size
    if hashlib.sha256(data[size:]).digest() != data[:size]:
        raise ValueError("the file is not what was written")
    return pickle.loads(data[size:])


def _text(values: Iterable[Any]) -> str | None:
    """Returns compile-time values as text that says all of them; None if one has no such text."""
    texts = []
    for value in values:
        if isinstance(value, tuple):
            text = _text(value)
        elif isinstance(value, JITFunction):
            text = value.cache_key
        elif isinstance(value, type) and is_constructor(value):
            text = f"{value.__module__}.{value.__qualname__} {getattr(value, '_fields', None) or list(vars(value)['fields'])}"
        elif value is None or isinstance(value, (bool, int, float, str, dtype, enum.Enum)):
            text = repr(value)
        else:
            text = None
        if text is None:
            return None
        texts.append(f"{type(value).__name__} {text}")
    return repr(texts)
