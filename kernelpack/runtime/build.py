"""Compiles C source to a Python module, and keeps it: for host code that brings a C part of its own."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from kernelpack import knobs
from kernelpack.errors import BuildError
from kernelpack.files.trust import admitted
from kernelpack.knobs.environment import command_of
from kernelpack.runtime.cache import get_cache_manager


def compile_module_from_src(
    src: str,
    name: str,
    library_dirs: Sequence[str] = (),
    include_dirs: Sequence[str] = (),
    libraries: Sequence[str] = (),
    ccflags: Sequence[str] = (),
) -> ModuleType:
    """Returns the module `name` that C source defines. Raises BuildError where it does not compile, and UntrustedFileError where others
    could replace what the cache keeps: it would be run."""
    file = f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    parts = [src, name, file, *library_dirs, *include_dirs, *libraries, *ccflags]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    cache = get_cache_manager(key)
    known = cache.get_file(file)
    if known is not None:
        with contextlib.suppress(ImportError):  # cut short: compile again
            return _import(name, admitted(*os.path.split(known), f"{key}/{file}"))
    with tempfile.TemporaryDirectory(prefix="kernelpack-") as folder:
        source = Path(folder) / f"{name}.c"
        source.write_text(src)
        build = knobs.build.impl or _build
        made = build(name, str(source), folder, list(library_dirs), list(include_dirs), list(libraries), list(ccflags))
        path = cache.put(Path(made).read_bytes(), file, binary=True)
    return _import(name, admitted(*os.path.split(path), f"{key}/{file}"))


def _build(
    name: str,
    src: str,
    srcdir: str,
    library_dirs: list[str],
    include_dirs: list[str],
    libraries: list[str],
    ccflags: list[str],
) -> str:
    """Compiles one file, and returns the path of the library. Raises BuildError."""
    found = knobs.build.cc or next(filter(None, map(shutil.which, ("gcc", "clang", "cc"))), None)
    if found is None:
        raise BuildError("there is no C compiler", cure="install gcc, or name one: CC=...")
    compiler = command_of("CC", found, "the C compiler")
    made = Path(srcdir) / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    extra = sorted(knobs.build.backend_dirs)
    includes = [srcdir, sysconfig.get_paths()["include"], *include_dirs, *extra]
    command = [*compiler, src, "-O3", "-shared", "-fPIC", "-Wno-psabi", "-o", str(made)]
    command += [f"-l{library}" for library in libraries] + [f"-L{folder}" for folder in (*library_dirs, *extra)]
    command += [f"-I{folder}" for folder in includes] + ccflags
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{name} does not compile:\n{done.stderr.strip()}")
    return str(made)


def _import(name: str, path: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        raise ImportError(str(path))
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
