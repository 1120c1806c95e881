"""Which values of a kernel may be accumulators of asynchronous products, and where ordinary code meets them."""

from __future__ import annotations

import re
from collections.abc import Sequence

_DEFINITION = re.compile(r"^\s*(%[\w.]+) = (.*)$")
_CARRIES = re.compile(r"^(extractvalue|insertvalue|phi|select)\b")
_NAME = re.compile(r"%[\w.$]+")


class Accumulators:
    """Finds what flows from `wgmma.mma_async` and `wgmma.wait_group` through structures and phis."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._used: dict[int, list[tuple[str, str]]] = {}
        self._written: set[int] = set()
        if any("wgmma.mma_async" in line for line in lines):
            self._follow(lines)

    def used_at(self, site: int) -> list[tuple[str, str]]:
        """Returns names and types of the values that a line uses as numbers although they may still be in flight."""
        return self._used.get(site, [])

    def written_before(self, site: int) -> bool:
        """Whether ordinary code of the same block, after the last wgmma.fence, writes registers of this product or fence."""
        return site in self._written

    def _follow(self, lines: Sequence[str]) -> None:
        definitions = {match[1]: (site, match[2]) for site, line in enumerate(lines, 1) if (match := _DEFINITION.match(line))}
        users: dict[str, list[int]] = {}
        for site, line in enumerate(lines, 1):
            for name in _NAME.findall(line):
                if site != definitions.get(name, (0,))[0]:
                    users.setdefault(name, []).append(site)
        held: set[str] = set()
        work = [name for name, (_, text) in definitions.items() if " asm " in text and "wgmma." in text]
        while work:
            name = work.pop()
            if name in held:
                continue
            held.add(name)
            for site in users.get(name, ()):
                match = _DEFINITION.match(lines[site - 1])
                if match and _CARRIES.match(match[2]):
                    work.append(match[1])
        for name in held:
            kind = _kind(definitions[name][1])
            if kind in ("float", "i32", "<2 x half>"):
                for site in users.get(name, ()):
                    match = _DEFINITION.match(lines[site - 1])
                    text = match[2] if match else lines[site - 1].strip()
                    if not _CARRIES.match(text) and not (" asm " in text and "wgmma." in text):
                        self._used.setdefault(site, []).append((name, kind))
        self._find_written(lines, definitions, held)

    def _find_written(self, lines: Sequence[str], definitions: dict[str, tuple[int, str]], held: set[str]) -> None:
        block = fence = 0
        for site, line in enumerate(lines, 1):
            if line and not line.startswith((" ", "\t")):
                block = fence = site
            elif "wgmma.mma_async" in line or "wgmma.fence" in line:
                arguments = line[line.rindex('"') :] if '"' in line else ""
                for name in _NAME.findall(arguments):
                    defined, text = definitions.get(name, (0, ""))
                    written = name not in held and defined > max(fence, block) and not text.startswith("phi")
                    if written and _kind_of_register(text):
                        self._written.add(site)
                if "wgmma.fence" in line:
                    fence = site


def _kind(text: str) -> str:
    """Returns the type of a definition's value."""
    if match := re.match(r"(?:call|phi) (\{[^}]*\}|<[^>]*>|\w+)", text):
        return match[1]
    if match := re.match(r"select [^,]+, (<[^>]*>|\w+) ", text):
        return match[1]
    if match := re.match(r"extractvalue \{([^}]*)\} \S+, (\d+)", text):
        return match[1].split(",")[int(match[2])].strip()
    return "{}"


def _kind_of_register(text: str) -> bool:
    """Whether a definition gives a number, and not an address or a descriptor (which are i64)."""
    return not re.match(r"(\w+ )+i64\b|zext|ptrtoint", text) and " to i64" not in text
