"""Tests of passes that are text alone: a module, and what `kernelpack opt` makes of it.

A file of tests/passes/data says on its first line which words `opt` gets, then what it protects, then the module before and after:

    // RUN: --target cuda:sm_80 --passes clean,sink_conversions
    // What one user needs is computed where it is needed.
    tt.func public @f() { ... }
    // ----
    module { ... }

It tests the last pass that it names; those before it prepare the module. `python -m tests.passes.texts FILE ...` writes what comes after
the line of dashes anew: read what it wrote before you commit it.
"""

from __future__ import annotations

import io
import shlex
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from kernelpack.cli import main

FOLDER = Path(__file__).parent / "data"
RUN = "// RUN: "
DASHES = "// ----\n"


@dataclass(frozen=True)
class PassText:
    """A file of the folder: the words that `kernelpack opt` gets, and the module before and after."""

    path: Path
    words: tuple[str, ...]
    before: str
    after: str

    @property
    def tested(self) -> str:
        """The pass that the file is a test of."""
        return self.words[self.words.index("--passes") + 1].split(",")[-1]

    @property
    def target(self) -> str:
        return self.words[self.words.index("--target") + 1]

    def run(self) -> str:
        """Returns what `kernelpack opt` prints for the module before."""
        printed = io.StringIO()
        with patch("sys.stdin", io.StringIO(self.before)), redirect_stdout(printed):
            code = main(["opt", "-", *self.words])
        assert code == 0, f"kernelpack opt {shlex.join(self.words)} ends with {code}"
        return printed.getvalue()


def read(path: Path) -> PassText:
    """Returns a file's parts. Raises ValueError for one without them."""
    first, _, rest = path.read_text().partition("\n")
    before, dashes, after = rest.partition(DASHES)
    if not first.startswith(RUN) or not dashes:
        raise ValueError(f"{path}: expected `{RUN}--target T --passes A,B` on the first line, and a line `{DASHES.strip()}`")
    return PassText(path, tuple(shlex.split(first.removeprefix(RUN))), before, after)


def texts() -> list[PassText]:
    """Returns all files of the folder, by name."""
    return [read(path) for path in sorted(FOLDER.glob("*.ttir"))]


def rewrite(path: Path) -> None:
    """Writes what passes make of the module now after the line of dashes."""
    found = read(path)
    path.write_text(f"{RUN}{shlex.join(found.words)}\n{found.before}{DASHES}{found.run()}")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        rewrite(Path(name))
