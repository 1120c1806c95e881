"""Finds `triton.a.b` as the module object kernelpack.triton.a.b. It imports nothing of kernelpack: Python may load it when it starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import Distribution, DistributionFinder

NAME = "triton"
HOME = "kernelpack.triton"
GLUON = "triton.experimental.gluon"
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Finder(MetaPathFinder, Loader):
    """A module is imported under kernelpack's name, and only when somebody imports it: torch asks whether there is a Triton, and
    which, while it is imported itself."""

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        name, *inner = fullname.split(".")
        if name != NAME:
            return None
        home = _home_of(fullname)
        found = PathFinder.find_spec(home, [os.path.join(PACKAGE, *home.split(".")[1:-1])])
        asked = bool(inner) and _is_only_asked_for()
        if found is None and not asked:
            _refuse(fullname)
        if found is None or (asked and _refusal_of(fullname)):
            return None
        spec = ModuleSpec(fullname, self, origin=found.origin, is_package=found.submodule_search_locations is not None)
        spec.submodule_search_locations = found.submodule_search_locations
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        __import__(_home_of(spec.name))
        module = sys.modules[_home_of(spec.name)]
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Gives a module its own spec back, which the import system has replaced, and all that are loaded their other names.

        Without the second, a later import of `triton.runtime.driver` would put that module over the object of the same name.
        """
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state
        for name in [name for name in sys.modules if name == HOME or name.startswith(HOME + ".")]:
            sys.modules.setdefault(NAME + name[len(HOME) :], sys.modules[name])

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterator[Distribution]:
        """What importlib.metadata says of the distribution `triton`."""
        if context is None or context.name is None or context.name.lower() == NAME:
            yield _distribution()


FINDER = Finder()


def _is_only_asked_for() -> bool:
    """Whether the finder's caller is importlib.util.find_spec: a program asks whether there is such a module, and imports nothing."""
    return sys._getframe(3).f_globals.get("__name__") == "importlib.util"


def _refuse(name: str) -> None:
    """Raises RefusedNameError if there is a reason why there is no such module."""
    if (error := _refusal_of(name)) is not None:
        raise error


def _refusal_of(name: str) -> Exception | None:
    from kernelpack.refusals import refusal, refused_part  # whoever imports a module within triton has imported triton

    return None if (refused := refused_part(name)) is None else refusal(refused)


def _home_of(name: str) -> str:
    """Returns the name of kernelpack's module. That of Gluon lies elsewhere: who asks whether it is there must not find it."""
    if name == GLUON or name.startswith(GLUON + "."):
        return HOME + "._gluon" + name[len(GLUON) :]
    return HOME + name[len(NAME) :]


def _distribution() -> Distribution:
    import runpy  # late: these take longer to import than all else here
    from importlib.metadata import Distribution

    version = runpy.run_path(os.path.join(PACKAGE, "version.py"))["LANGUAGE_VERSION"]

    class StandIn(Distribution):
        def read_text(self, filename: str) -> str | None:
            known = {
                "METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\nSummary: kernelpack, standing in for Triton\n",
                "top_level.txt": f"{NAME}\n",
            }
            return known.get(filename)

        def locate_file(self, path: str | os.PathLike[str]) -> Any:
            from pathlib import Path

            return Path(os.path.dirname(PACKAGE), path)

    return StandIn()
