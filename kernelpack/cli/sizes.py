"""kernelpack inspect --size: what the bytes of a built library are."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from kernelpack.cli.terminal import Style, size, table, width
from kernelpack.errors import OptionError

if TYPE_CHECKING:
    from kernelpack.opgen.size import Sizes


def run(arguments: argparse.Namespace) -> int:
    """Prints the sizes of a built folder. Raises OptionError for anything else than one folder."""
    from kernelpack.opgen.size import sizes

    if len(arguments.sources) != 1 or not arguments.sources[0].is_dir():
        raise OptionError("--size takes one folder", cure="name the folder of a built library")
    found = sizes(arguments.sources[0])
    if arguments.json:
        record = {"library": str(found.library), "bytes": found.total, "parts": [asdict(part) for part in found.parts]}
        print(json.dumps(record, indent=1))
    else:
        print("\n".join(_text(found)))
    return 0


def _text(found: Sizes) -> list[str]:
    """Returns a table of code by op and target, then what serves all ops."""
    style = Style(sys.stdout)
    lines = [f"{style.bold(str(found.library))}  {size(found.total)}"]
    code = {(part.op, part.target): part.bytes for part in found.parts if part.op}
    ops = sorted({op for op, _ in code}, key=lambda op: -sum(count for (other, _), count in code.items() if other == op))
    targets = sorted({target for _, target in code})

    def row(name: str, counts: list[int]) -> list[str]:
        return [name, *(size(count) if count else "" for count in [*counts, sum(counts)])]

    rows = [row(op, [code.get((op, target), 0) for target in targets]) for op in ops]
    rows.append(row("all", [sum(code.get((op, target), 0) for op in ops) for target in targets]))
    lines += ["", *table(["code of kernels", *targets, "all"], rows, columns=width(sys.stdout))]
    others = sorted(((part.bytes, part.kind) for part in found.parts if not part.op), reverse=True)
    lines += ["", *table(["beside it", "all"], [[kind, size(count)] for count, kind in others], columns=width(sys.stdout))]
    return lines
