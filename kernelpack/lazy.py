"""What is imported when somebody first asks for it: names of a module from their homes, and packages that only compiling needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


class LazyModule:
    """Stands for a module, which is imported when something of it is first used: launching compiled kernels needs no LLVM, no NumPy."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value


def lazy_names(module: str, homes: Mapping[str, Iterable[str]], modules: Iterable[str] = ()) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a module: `homes` lists names by the module of kernelpack that defines them, `modules` those
    inside of this one."""
    home_of = {name: home for home, names in homes.items() for name in names}

    def __getattr__(name: str) -> Any:
        if name in modules:
            return import_module(f"{module}.{name}")
        if name not in home_of:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(import_module(f"kernelpack.{home_of[name]}"), name)
        setattr(sys.modules[module], name, value)
        return value

    return __getattr__
