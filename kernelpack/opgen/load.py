"""Loads built op libraries into Python: torch.ops.NAMESPACE.* with their fake kernels."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from kernelpack import knobs
from kernelpack.errors import BuildError


def load(path: Path | str, *, public_key: Path | str | None = None) -> ModuleType:
    """Loads the op library in a folder that `kernelpack build` made and returns its package; once, however often it is called.

    With `public_key`, a PEM file (default: KERNELPACK_REQUIRE_SIGNATURE), nothing of the folder runs unless `kernelpack sign` signed it
    with the key's other half, and each file is what was signed: else UntrustedFileError. Raises BuildError if the folder holds no
    library, and ImportError if this machine or CPU cannot run it, it is not the one of the manifest beside it, or torch.ops already has
    ops of that namespace; nothing is loaded then.
    """
    folder = Path(path).resolve()
    file = folder / "__init__.py"
    if not file.is_file() or not list(folder.glob("lib*_ops.so")):
        raise BuildError(f"{folder} holds no op library", cure="name the folder that kernelpack build wrote")
    key = public_key if public_key is not None else knobs.REQUIRE_SIGNATURE.get()
    if not key:
        return _loaded(folder, file)
    from kernelpack.ship.signature import check_signed  # late: serving needs torch alone

    check_signed(folder, Path(key))
    with _from_source():
        return _loaded(folder, file)


def _loaded(folder: Path, file: Path) -> ModuleType:
    """Returns the package of a folder, which is executed unless it was before."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(file):
            return module
    name = f"kernelpack_library_{folder.name}"
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=[str(folder)])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _from_source() -> Iterator[None]:
    """While it is entered, imports read no bytecode that lies beside a source: only sources are signed."""
    before = sys.pycache_prefix, sys.dont_write_bytecode
    sys.pycache_prefix, sys.dont_write_bytecode = "/dev/null", True
    try:
        yield
    finally:
        sys.pycache_prefix, sys.dont_write_bytecode = before


def library_file(path: Path) -> Path:
    """Returns the op library that a path names, or that lies in a folder. Raises BuildError for none and for several."""
    found = [path] if path.is_file() else sorted(path.glob("lib*_ops.so"))
    if not found:
        raise BuildError(f"{path} holds no op library", cure="name the folder that kernelpack build wrote")
    if len(found) > 1:
        raise BuildError(f"{path} holds {len(found)} op libraries", cure=f"name one of them, such as {found[0]}")
    return found[0]


def namespace_of(library: Path) -> str:
    """Returns the namespace of `libNAME_ops.so`."""
    return library.name.removeprefix("lib").removesuffix("_ops.so")


def own_library() -> Path:
    """Returns where the op library that kernelpack ships is, or would be."""
    return Path(__file__).parents[1] / "library"


def load_own_library() -> None:
    """Loads torch.ops.kernelpack.*, if this installation has it."""
    if knobs.LOAD_LIBRARY.is_on() and (own_library() / "libkernelpack_ops.so").is_file():
        load(own_library())
