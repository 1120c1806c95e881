"""Draws the figures of a benchmark: python -m benchmarks.plot FILE.json writes an SVG beside it, and one more for each other unit."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from kernelpack.errors import BuildError
from kernelpack.report.plot import figures_of, plot


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plot", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="what a benchmark wrote by --json")
    parser.add_argument("--only", default="", metavar="WORDS", help="only cases with all these words in their names")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME", help="only this peer; give it again for several")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the plots go (default: beside the file)")
    asked = parser.parse_args(argv)
    for file in asked.files:
        try:
            found = figures_of(file, asked.only, asked.peer)
        except BuildError as error:
            sys.exit(str(error))
        if not found:
            parser.error(f"{file} has no case with {asked.only!r} in its name and such a peer")
        for number, figures in enumerate(found):
            target = (asked.out or file.parent) / f"{file.stem}{f'-{number + 1}' if number else ''}.svg"
            target.write_text(plot(figures))
            print(f"{target}: {figures.title}, {len(figures.cases)} cases")


if __name__ == "__main__":
    main()
