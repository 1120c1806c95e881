"""The pages of the project, their fenced blocks, and the folder in which a page's blocks are run."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@dataclass(frozen=True)
class Block:
    """A fenced block: the words after its fence, and its text."""

    words: tuple[str, ...]
    text: str

    @property
    def language(self) -> str:
        return self.words[0]

    @property
    def file(self) -> str:
        """The name of the file that the first line says the block is; empty if it says none."""
        named = re.match(r"(?:#|//) ([\w./]+\.\w+)\n", self.text)
        return named[1] if named and self.language != "sh" else ""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """Returns a page's blocks that say which language they are in."""
    found = re.findall(r"^```(\w[^\n]*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [Block(tuple(words.split()), text) for words, text in found]


def commands(page: Path, *marks: str) -> list[str]:
    """The texts of a page's sh blocks with no mark but these."""
    return [block.text for block in blocks(page) if block.language == "sh" and set(block.words[1:]) <= set(marks)]


def prepare(page: Path, folder: Path) -> dict[str, str]:
    """Writes the files of a page, and README's, into a folder. Returns the environment in which commands find this kernelpack."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    for name, words in {"kernelpack": "-m kernelpack", "python": ""}.items():
        (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (tools / name).chmod(0o755)
    for block in (*blocks(README), *blocks(page)):
        if block.file:
            (folder / block.file).write_text(block.text)
    if not (folder / "ops").exists():
        (folder / "ops").symlink_to(ROOT / "ops")
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "KERNELPACK_LOAD_LIBRARY": "0", "NO_COLOR": "1"}
