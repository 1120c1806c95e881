"""Reads what KERNELPACK_TRACE noted of launches, from one file or several: which variants of which kernels, and what searches chose."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelpack.errors import BuildError
from kernelpack.files.document import Either, Shape, read_document
from kernelpack.options import BY_DEFAULT, OPTION_TYPES
from kernelpack.runtime.record import BEGINS

_KERNEL: Shape = {"kernel": str, "package": str | None, "version": str | None, "source": str, "file?": str}
_PATHS: Shape = [int | str]
_VARIANT: Shape = {
    **_KERNEL,
    "backend": str,
    "signature": {...: object},
    "constants": [(_PATHS, object)],
    "facts": [(_PATHS, [(str, int)])],
    "options": {f"{name}?": kind for name, kind in OPTION_TYPES.items()},
}
_BY_HAND: Shape = {
    "kernel": str,
    "file?": str,
    "backend": str,
    "signature": {...: object},
    "constants?": {...: object},
    "facts?": {...: [(str, int)]},
    "options?": _VARIANT["options"],
}
"""A line that somebody wrote: whatever is installed is meant, and constants and facts are by name."""
_REFUSED: Shape = {**_KERNEL, "backend": str, "refused": str}
_SEARCH: Shape = {**_KERNEL, "search": [str], "config": {...: object}}


@dataclass(frozen=True)
class Noted:
    """A line of a record. `said` is what it says, `place` its file and line."""

    said: Mapping[str, Any]
    place: str

    @property
    def kernel(self) -> str:
        """Module and name."""
        return str(self.said["kernel"])

    @property
    def name(self) -> str:
        return self.kernel.partition(":")[2]


@dataclass
class Record:
    """What was recorded: variants to compile, searches, and what could not be written down."""

    variants: list[Noted] = field(default_factory=list)
    searches: list[Noted] = field(default_factory=list)
    refused: list[Noted] = field(default_factory=list)


def read_records(files: Iterable[Path]) -> Record:
    """Returns what record files hold together, each thing once. Lines of calls of ops are passed over: they are for `kernelpack trace`.

    Raises BuildError for a file that cannot be read, and, with the line, for what no process with KERNELPACK_TRACE wrote.
    """
    found = Record()
    known: set[bytes] = set()
    for file in files:
        try:
            with file.open("rb") as stream:
                for number, line in enumerate(stream, 1):
                    digest = hashlib.sha256(line).digest()
                    if digest not in known and not line.startswith(BEGINS[0].encode()):
                        known.add(digest)
                        _take(line, f"{file}:{number}", found)
        except OSError as problem:
            raise BuildError(f"{file} cannot be read: {problem.strerror}", cure=_CURE) from None
    return _chosen(found)


_CURE = "run the program with KERNELPACK_TRACE=FILE, then name that file"


def _take(line: bytes, place: str, found: Record) -> None:
    if not line.strip():
        return
    try:
        said = read_document(
            line, Either(_VARIANT, _SEARCH, _REFUSED, _BY_HAND) if b'"backend"' in line else Either(_SEARCH, _VARIANT)
        )
    except ValueError as problem:
        shown = line[:60].decode(errors="backslashreplace").rstrip()
        raise BuildError(f"{place}: this is no line that KERNELPACK_TRACE wrote: {shown!r}: {problem}", cure=_CURE) from None
    if "signature" in said and "source" not in said:
        said = _in_full(said, place)
    kind = found.searches if "search" in said else found.refused if "refused" in said else found.variants
    kind.append(Noted(said, place))


def _in_full(said: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Returns a line that somebody wrote as a launch would be noted; `source` is empty. Raises BuildError for names that it does not have."""
    names = list(said["signature"])
    by_name = {part: said.get(part, {}) for part in ("constants", "facts")}
    unknown = sorted(name for found in by_name.values() for name in found if name not in names)
    if unknown:
        raise BuildError(f"{place}: the signature has no {', '.join(unknown)}", cure=f"it has {', '.join(names)}")
    full = {part: [[[names.index(name)], value] for name, value in found.items()] for part, found in by_name.items()}
    return {"package": None, "version": None, "source": "", "options": {}, **said, **full}


def _chosen(found: Record) -> Record:
    """Leaves out the variants that searches tried and did not choose, and what differs only in where it was recorded."""
    configs: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for search in found.searches:
        configs.setdefault((search.kernel, search.said["source"]), []).append(search.said["config"])
    kept: dict[str, Noted] = {}
    for one in found.variants:
        chosen = configs.get((one.kernel, one.said["source"]))
        if chosen is None or any(_has(one.said, config) for config in chosen):
            kept.setdefault(json.dumps({name: part for name, part in one.said.items() if name != "file"}), one)
    return Record(list(kept.values()), found.searches, found.refused)


def _has(said: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether a variant was compiled with a config: the constants and options that the config names are its own."""
    names: Sequence[str] = list(said["signature"])
    values = {names[path[0]]: value for path, value in said["constants"] if len(path) == 1}
    stated = {**vars(BY_DEFAULT), **said["options"], **values}
    return all(stated[name] == value for name, value in config.items() if name in stated)
