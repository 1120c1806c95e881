"""Kernels that earlier processes compiled for launches from Python, kept in the cache folder."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

from kernelpack import knobs
from kernelpack.compiled import CompiledKernel
from kernelpack.compiler.target_backend import TargetBackend, TargetOptions, inspection
from kernelpack.errors import KernelpackError, PackError, UntrustedFileError
from kernelpack.files.cache import go_without
from kernelpack.files.trust import admitted
from kernelpack.runtime.ahead_of_time import ASTSource
from kernelpack.runtime.cache import (
    CacheManager,
    FileCacheManager,
    RemoteCacheManager,
    get_cache_invalidating_env_vars,
    get_cache_manager,
)
from kernelpack.runtime.kernel_file import kernel_bytes, parse_kernel
from kernelpack.runtime.keys import get_cache_key

_FILE = "kernel.bin"


class KernelCache:
    """The place of one compiled kernel: named by the hash of everything that decides what is compiled."""

    def __init__(self, source: ASTSource, backend: TargetBackend, options: TargetOptions) -> None:
        self.options = options.plain
        self.path: str | None = None
        self._manager: CacheManager | None = None
        if knobs.cache_dir() is None:
            return
        try:
            key = get_cache_key(source, backend, options, get_cache_invalidating_env_vars())
        except TypeError:  # a constant has no text that says all of it
            return
        inspected, _ = inspection()
        self._key = hashlib.sha256((key + inspected).encode()).hexdigest()
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
