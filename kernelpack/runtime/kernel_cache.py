"""Kernels that earlier processes compiled for launches from Python, kept in the cache folder."""

from __future__ import annotations

import enum
import hashlib
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelpack import knobs
from kernelpack.backends.installed import backend_of
from kernelpack.compiled import CompiledKernel
from kernelpack.compiler.stages import source_hash
from kernelpack.errors import KernelpackError, PackError, UntrustedFileError
from kernelpack.files.cache import go_without
from kernelpack.files.trust import admitted
from kernelpack.frontend.expressions import is_constructor
from kernelpack.kernel.dependencies import lines_of
from kernelpack.kernel.jit import JITFunction
from kernelpack.kernel.types import dtype
from kernelpack.options import Options
from kernelpack.runtime.cache import CacheManager, FileCacheManager, RemoteCacheManager, get_cache_manager
from kernelpack.runtime.kernel_file import kernel_bytes, parse_kernel
from kernelpack.runtime.specialization import Specialization
from kernelpack.target import Target

_FILE = "kernel.bin"


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
            backend.cache_key(),
            fn.cache_key,
            fn.symbol(dict(special.signature), dict(special.constexprs)),
            lines_of(fn) if backend.line_information else "",
            repr((special.signature, [name for name, _ in special.constexprs], special.facts, str(target), decisive)),
            constexprs,
        ]
        self._key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        self._manager = get_cache_manager(self._key)

    def load(self) -> CompiledKernel | None:
        """Returns the kernel; None where it was never compiled, its file does not read, or somebody else can have written it: of that it
        warns. Raises BuildError for a bad lock of the cache."""
        if self._manager is None:
            return None
        try:
            self.path = self._manager.get_file(_FILE)
            if self.path is None:
                return None
            place: str | Path = self.path
            if type(self._manager) not in (FileCacheManager, RemoteCacheManager):  # which give nothing else
                place = admitted(*os.path.split(place), f"{self._key}/{_FILE}")
            with open(place, "rb") as file:
                kernel = parse_kernel(file.read(), self.path)
        except UntrustedFileError as problem:
            go_without(problem)
            return None
        except PackError:  # cut short by a full disk, altered, of another version: compile again
            return None
        except KernelpackError:
            raise
        except Exception:  # e.g. a manager whose server is away: compile again
            return None
        return replace(kernel, options=self.options)

    def save(self, kernel: CompiledKernel) -> None:
        """Keeps a kernel. A place that cannot be written is no reason to fail: the next process compiles again."""
        if self._manager is None:
            return
        try:
            self.path = self._manager.put(kernel_bytes(kernel), _FILE)
        except UntrustedFileError as problem:
            go_without(problem)
        except Exception:  # e.g. a full disk, a manager whose server is away
            self.path = None


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
