"""The lock of a cache: the SHA-256 of each file in it that may be loaded, whoever owns the cache."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kernelpack.errors import PackError
from kernelpack.files.generated import MARK

_FIRST_LINE = f"# {MARK}: lock of a cache, version 1: SHA-256, file"
_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")


def lock_text(files: Mapping[str, str]) -> str:
    """Returns the text of a lock for hashes by the files' names in the cache. Lines are those of `sha256sum`."""
    return "\n".join([_FIRST_LINE, *(f"{sha256}  {name}" for name, sha256 in sorted(files.items()))]) + "\n"


def parse_lock(text: str, name: str) -> dict[str, str]:
    """Returns the hashes by file. Raises PackError, with the line, for what `kernelpack cache --lock` did not write."""
    lines = text.split("\n")
    cure = "write it again: kernelpack cache --lock FILE"
    if lines[0] != _FIRST_LINE or lines[-1] != "":
        raise PackError(f"{name}:1: it is no lock of a cache, or one of another version", cure=cure)
    found: dict[str, str] = {}
    for number, line in enumerate(lines[1:-1], start=2):
        match = _LINE.fullmatch(line)
        if match is None or match[2] in found:
            raise PackError(f"{name}:{number}: expected SHA-256 and a file, once each, found {line[:80]!r}", cure=cure)
        found[match[2]] = match[1]
    return found
