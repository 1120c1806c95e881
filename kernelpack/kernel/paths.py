"""Places in nested tuples and lists: (1, 0) is the first entry of the second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Path = tuple[int, ...]


def find_paths_if(iterable: Any, pred: Callable[[Path, Any], bool]) -> list[Path]:
    """Returns the places of the entries, those of nested ones too, for which `pred(place, entry)` holds, in order."""
    return [path for path, entry in _leaves((), iterable) if pred(path, entry)]


def get_iterable_path(iterable: Any, path: Path) -> Any:
    """Returns the entry at a place."""
    for index in path:
        iterable = iterable[index]
    return iterable


def _leaves(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, (list, tuple)):
        for index, entry in enumerate(value):
            yield from _leaves((*path, index), entry)
    else:
        yield path, value
