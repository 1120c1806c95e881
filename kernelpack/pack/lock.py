"""ops.lock: what a library was built with, and a line for each variant, by which a rebuild is compared bit for bit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelpack.errors import PackError
from kernelpack.pack.format import KernelPack

_FIRST_LINE = "# kernelpack lock, version 2: tools, then target, variant, SHA-256 of the pack"


@dataclass(frozen=True, order=True)
class LockLine:
    """A variant and the SHA-256 of its pack's text."""

    target: str
    variant: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.target} {self.variant} {self.sha256}"


@dataclass(frozen=True)
class Lock:
    """What a lock file states: the hashes by (target, variant), and the versions of the tools that made the code, by name."""

    hashes: Mapping[tuple[str, str], str]
    tools: Mapping[str, str]

    def check_tools(self, tools: Mapping[str, str], name: str) -> None:
        """Raises PackError where `tools` have other versions than the lock file states: they make other code of the same sources."""
        stated = {tool: self.tools[tool] for tool in tools if self.tools.get(tool, tools[tool]) != tools[tool]}
        if stated:
            expected, found = (
                ", ".join(f"{tool} = {versions[tool]}" for tool in sorted(stated)) for versions in (stated, tools)
            )
            raise PackError(
                f"{name} is for {expected}; here is {found}, which makes other code of the same sources",
                cure="install what the lock file states, or build with what is here and keep that lock file",
            )


def lock_text(packs: Iterable[KernelPack]) -> str:
    """Returns the text of the lock file for a library's packs."""
    packs = list(packs)
    tools = sorted({f"# {tool} = {version}" for pack in packs for tool, version in pack.tools.items()})
    return "\n".join([_FIRST_LINE, *tools, *map(str, sorted(lock_line(pack) for pack in packs))]) + "\n"


def lock_line(pack: KernelPack) -> LockLine:
    return LockLine(str(pack.target), pack.variant, hashlib.sha256(str(pack).encode()).hexdigest())


def read_lock(path: Path) -> Lock:
    """Reads a lock file; see `parse_lock`. Raises OSError and PackError."""
    try:
        return parse_lock(path.read_text(), str(path))
    except UnicodeDecodeError:
        raise PackError(f"{path}:1: the lock file is not text", cure="build it again: kernelpack build") from None


def parse_lock(text: str, name: str = "ops.lock") -> Lock:
    """Returns what a lock file states. Raises PackError for a line that a build did not write."""
    lines = text.split("\n")
    if lines[0] != _FIRST_LINE or lines[-1] != "":
        raise PackError(f"{name}:1: it is no lock file, or one of another version", cure="build it again: kernelpack build")
    hashes: dict[tuple[str, str], str] = {}
    tools: dict[str, str] = {}
    for number, line in enumerate(lines[1:-1], start=2):
        tool, equals, version = line.removeprefix("# ").partition(" = ")
        parts = line.split(" ")
        hexadecimal = len(parts) == 3 and len(parts[2]) == 64 and set(parts[2]) <= set("0123456789abcdef")
        if line.startswith("# ") and equals and not hashes and tool not in tools:
            tools[tool] = version
        elif hexadecimal and (parts[0], parts[1]) not in hashes:
            hashes[parts[0], parts[1]] = parts[2]
        else:
            raise PackError(f"{name}:{number}: expected target, variant and SHA-256, found {line!r}", cure="build it again")
    return Lock(hashes, tools)


def differences(locked: Mapping[tuple[str, str], str], built: Mapping[tuple[str, str], str]) -> list[str]:
    """Returns what differs between a lock file and a rebuild, one sentence for each variant; empty if nothing does."""
    found: list[str] = []
    for target, variant in sorted({*locked, *built}):
        old, new = locked.get((target, variant)), built.get((target, variant))
        if old is None:
            found.append(f"{variant} for {target} is not in the lock file")
        elif new is None:
            found.append(f"{variant} for {target} is in the lock file, but the sources do not make it")
        elif old != new:
            found.append(f"{variant} for {target} differs: the lock file has {old[:12]}, the sources make {new[:12]}")
    return found
