"""Finds the kernels that a record names: imports their modules, with kernelpack as `triton`, and checks that their source is the recorded one."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

from kernelpack import as_triton
from kernelpack.adopt.records import Noted
from kernelpack.errors import BuildError, KernelpackError
from kernelpack.kernel.jit import KNOWN, JITFunction
from kernelpack.options import Options
from kernelpack.runtime import record
from kernelpack.runtime.ahead_of_time import ASTSource
from kernelpack.runtime.key_text import from_json


class NotFoundError(BuildError):
    """A recorded kernel that this installation does not have as it was."""


_kept: dict[str, JITFunction] = {}
"""Functions by module and name: KNOWN keeps none alive."""


def source_of(noted: Noted) -> tuple[ASTSource, Options]:
    """Returns what a line of a record is compiled from, and its options. Raises NotFoundError, with the place of the line."""
    said = noted.said
    fn = _function(noted)
    if said["source"] not in (fn.cache_key, ""):
        had, here = said["version"], record.identity(fn)["version"]
        versions = f": {said['package']} was {had} and is {here}" if had != here else ""
        raise NotFoundError(
            f"{noted.place}: {noted.kernel} is not what was recorded: its source, or what it calls, has changed{versions}",
            cure="record it again, or install what was recorded",
        )
    try:
        for name in _named(said["constants"]):
            _known(name, said.get("file"))
        signature = {name: _types(kind) for name, kind in said["signature"].items()}
        constants = {tuple(path): from_json(value) for path, value in said["constants"]}
        facts = {tuple(path): found for path, found in said["facts"]}
        source = ASTSource(fn, signature, constants, facts)
        hash(source.specialization)
        return source, Options(**said["options"])
    except NotFoundError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError, KernelpackError) as problem:
        raise NotFoundError(f"{noted.place}: {noted.kernel} cannot be called so: {problem}", cure="record it again") from None


@functools.cache
def licence_of(package: str | None) -> str | None:
    """Returns the licence that an installed package states; None where it states none."""
    if package is None:
        return None
    try:
        stated: Any = importlib.metadata.metadata(package)
    except importlib.metadata.PackageNotFoundError:
        return None
    expression, plain = stated.get("License-Expression"), stated.get("License") or ""
    classified = [row.rpartition(" :: ")[2] for row in stated.get_all("Classifier") or () if row.startswith("License ::")]
    return expression or ", ".join(classified) or (plain if 0 < len(plain) < 60 else None)


def _function(noted: Noted) -> JITFunction:
    try:
        return _known(noted.kernel, noted.said.get("file"))
    except NotFoundError as problem:
        raise NotFoundError(f"{noted.place}: {problem.message}", cure=problem.cure) from None


def _known(kernel: str, file: str | None) -> JITFunction:
    """Returns a function by module and name. Raises NotFoundError."""
    module, _, name = kernel.partition(":")
    if kernel not in _kept:
        _imported(module, file)
        if kernel not in KNOWN:
            within = "; kernels that a function makes when it is called are not found" if "<locals>" in name else ""
            raise NotFoundError(
                f"{module} has no kernel {name}{within}", cure="define it where importing the module defines it"
            )
        _kept[kernel] = KNOWN[kernel]
    return _kept[kernel]


@functools.cache
def _imported(name: str, file: str | None) -> None:
    """Imports a module by its name, or else from the file that was recorded. Raises NotFoundError."""
    as_triton.install()
    problem: Exception | None = None
    if name != "__main__":
        try:
            importlib.import_module(name)
            return
        except Exception as raised:  # what a module does when it is imported is its own
            problem = raised
    if file is not None and Path(file).is_file():
        try:
            _run(name, file)
            return
        except Exception as raised:
            problem = raised
    why = f"{type(problem).__name__}: {problem}" if problem is not None else "it is a program, and its file is not there"
    raise NotFoundError(f"{name} cannot be imported: {why}", cure="adopt where the recorded packages are installed")


def _run(name: str, file: str) -> None:
    """Runs a file as a module of a name: a program is no program then."""
    called = re.sub(r"\W", "_", file) if name == "__main__" else name
    spec = importlib.util.spec_from_file_location(called, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[called] = module
    before = dict(KNOWN)
    spec.loader.exec_module(module)
    for known, function in list(KNOWN.items()):
        if called != name and known.startswith(f"{called}:") and before.get(known) is not function:
            _kept[f"{name}:{known.partition(':')[2]}"] = KNOWN[f"{name}:{known.partition(':')[2]}"] = function


def _named(written: Any) -> list[str]:
    """Returns the functions that constants name."""
    if isinstance(written, dict):
        own = [written["jit_function"]] if isinstance(written.get("jit_function"), str) else []
        return own + [name for part in written.values() for name in _named(part)]
    return [name for part in written for name in _named(part)] if isinstance(written, (list, tuple)) else []


def _types(written: Any) -> Any:
    return tuple(map(_types, written)) if isinstance(written, list) else str(written)
