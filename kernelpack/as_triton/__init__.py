"""Standing in for Triton: `import triton...` in any package means kernelpack.triton, even where PyPI's triton is installed."""

from __future__ import annotations

import os
import re
import sys
from importlib.metadata import distributions
from importlib.util import find_spec

from kernelpack import knobs
from kernelpack.as_triton.finder import FINDER, NAME
from kernelpack.errors import StandInError
from kernelpack.version import LANGUAGE_VERSION

__all__ = ["install", "installed", "other_versions_wanted", "starts_with_python", "uninstall"]

_ON_PATH = os.path.join(os.path.dirname(__file__), "on_path")
"""A folder in which `triton` is: for processes that get this one's path, as Inductor's compile workers do, and not its finder."""
_INDUCTOR = "torch._inductor.runtime.triton_compat"


def install() -> None:
    """Makes `import triton` mean kernelpack in this process, for all modules that are imported from now on.

    Doing it twice is doing it once. Raises StandInError if Triton itself was imported before: two kinds of kernels would meet; and if
    torch's Inductor was, where it found no Triton.
    """
    if installed():
        return
    if NAME in sys.modules:
        raise StandInError(
            f"{NAME} was imported before, from {getattr(sys.modules[NAME], '__file__', None) or 'an unknown place'}",
            cure=f"call kernelpack.as_triton.install() before anything imports {NAME}, or start Python with {knobs.AS_TRITON.name}=1",
        )
    if getattr(sys.modules.get(_INDUCTOR), "HAS_TRITON", True) is False:
        raise StandInError(
            f"{_INDUCTOR} was imported before, and found no {NAME}: Inductor does without from then on",
            cure=f"call kernelpack.as_triton.install() before anything imports torch._inductor, or start Python with {knobs.AS_TRITON.name}=1",
        )
    sys.meta_path.insert(0, FINDER)
    sys.path.insert(1, _ON_PATH)
    _forget_what_torch_found()


def uninstall() -> None:
    """Ends it: `import triton` means what it meant before. Modules that have imported kernelpack's names keep them."""
    if not installed():
        return
    sys.meta_path.remove(FINDER)
    if _ON_PATH in sys.path:
        sys.path.remove(_ON_PATH)
    for name in [name for name in sys.modules if name == NAME or name.startswith(NAME + ".")]:
        del sys.modules[name]
    _forget_what_torch_found()


def installed() -> bool:
    """Returns whether `import triton` means kernelpack in this process."""
    return FINDER in sys.meta_path


def starts_with_python() -> bool:
    """Returns whether KERNELPACK_AS_TRITON=1 reaches programs that do not import kernelpack, and their child processes."""
    return find_spec("kernelpack_as_triton") is not None


def other_versions_wanted() -> dict[str, str]:
    """Returns the installed packages that ask for another version of Triton than kernelpack stands in for, with what they ask for."""
    from packaging.requirements import InvalidRequirement, Requirement  # late: serving needs torch alone

    wanted = {}
    for distribution in distributions():
        for text in distribution.requires or ():
            if not re.match(rf"{NAME}\b(?!-)", text):
                continue
            try:
                requirement = Requirement(text)
            except InvalidRequirement:
                continue
            applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if applies and not requirement.specifier.contains(LANGUAGE_VERSION, prereleases=True):
                wanted[f"{distribution.name} {distribution.version}"] = f"{NAME}{requirement.specifier}"
    return wanted


def _forget_what_torch_found() -> None:
    """torch keeps whether there is a Triton, and which."""
    if (module := sys.modules.get("torch.utils._triton")) is not None:
        for function in vars(module).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()
