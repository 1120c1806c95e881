"""C++ that this machine compiles for itself, once: libraries that are kept in the cache of kernels."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kernelpack import knobs
from kernelpack.errors import BuildError
from kernelpack.files.cache import CacheFolder
from kernelpack.pack.ninja import compiler


def native_library(name: str, sources: Sequence[Path], options: Sequence[str], work: Path, what: str) -> Path:
    """Returns the library `name` of C++ sources, from the cache or else compiled into it; where there is no cache, into the empty folder
    `work`.

    `name` says by a hash what it is made of. Raises BuildError, calling the sources `what`, where they do not compile, and
    UntrustedFileError where somebody else can have written what the cache has.
    """
    folder = knobs.cache_dir()
    cache = None if folder is None else CacheFolder(folder)
    known = None if cache is None else cache.find(name)
    if known is not None:
        return known
    with contextlib.suppress(OSError):  # a place that cannot be written: the next process compiles again
        if cache is not None:
            cache.make()  # what others can change is refused before anything is compiled
    library, objects = work / name, [f"{work}/{number}-{source.stem}.o" for number, source in enumerate(sources)]
    command = [*compiler(), "-std=c++17", "-O2", "-fPIC", *options]
    _run(what, *([*command, "-c", str(source), "-o", made] for source, made in zip(sources, objects, strict=True)))
    _run(what, [*command, "-shared", *objects, "-o", str(library)])
    with contextlib.suppress(OSError):
        if cache is not None:
            return cache.write(name, library.read_bytes())
    return library


def _run(what: str, *commands: list[str]) -> None:
    """Runs commands at once. Raises BuildError, with what one says that fails."""
    jobs = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    said = [job.communicate()[1] for job in jobs]
    for job, problems in zip(jobs, said, strict=True):
        if job.returncode:
            raise BuildError(f"{what} does not compile:\n{problems}")
