"""Where operations come from: user code, or the language's own functions."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from kernelpack.ir.core import Location, Operation

HOMES_OF_THE_LANGUAGE = ("kernelpack.language", "kernelpack.kernel", "kernelpack.backends.cuda.hopper", "kernelpack.triton")
"""Modules that define what kernels call: their classes are readable in kernels, and never change."""
_LANGUAGE = str(Path(__file__).parents[1] / "language") + os.sep


@functools.cache
def relative_name(file: str) -> str:
    """Returns a source file's path from the folder around its outermost package; its name alone outside of packages."""
    path = Path(file)
    root = path.parent
    while (root / "__init__.py").is_file() and root != root.parent:
        root = root.parent
    return path.relative_to(root).as_posix()


def is_of_language(file: str) -> bool:
    """Whether a file holds the language's own functions."""
    return file.startswith(_LANGUAGE)


def source_files(module: Operation) -> dict[str, str]:
    """Returns the files that the operations of a module come from, by the names that line information has for them."""
    places = (user_location(op.location).source for op in module.walk())
    return {relative_name(place.file): place.file for place in places if place is not None}


def user_location(location: Location) -> Location:
    """Returns the innermost call site that is not inside the language's own functions."""
    while location.callsite is not None and location.source is not None and is_of_language(location.source.file):
        location = location.callsite
    return location
