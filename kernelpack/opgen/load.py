"""Loads built op libraries into Python: torch.ops.NAMESPACE.* with their fake kernels."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from kernelpack import knobs
from kernelpack.errors import BuildError


def load(path: Path | str) -> ModuleType:
    """Loads the op library in a folder that `kernelpack build` made and returns its package; once, however often it is called.

    Raises BuildError if the folder holds no library, and ImportError if this machine or CPU cannot run it, or torch.ops already has ops
    of that namespace; nothing is loaded then.
    """
    folder = Path(path).resolve()
    file = folder / "__init__.py"
    if not file.is_file() or not list(folder.glob("lib*_ops.so")):
        raise BuildError(f"{folder} holds no op library", cure="name the folder that kernelpack build wrote")
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) and Path(str(module.__file__)) == file:
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
