"""kernelpack unbox: makes torch call a built library's ops without boxing."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kernelpack.cli.terminal import Style, count

PURPOSE = "make the calls of a built library faster, from C++, TorchScript and Python, for the torch that is installed here"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "library", type=Path, metavar="DIR", help="the folder that kernelpack build wrote, or libNAME_ops.so in it"
    )


def run(arguments: argparse.Namespace) -> int:
    from kernelpack.opgen.unbox import unbox

    made = unbox(arguments.library)
    if arguments.json:
        print(json.dumps({"path": str(made.path), "torch": made.torch, "schemas": made.schemas}, indent=1))
        return 0
    style = Style(sys.stdout)
    what = f"{count(len(made.schemas), 'schema')}, torch {made.torch}, in {made.seconds:.1f} s"
    print(f"{style.green('unboxed')} {style.bold(made.path.name)}: {what}\n  {made.path}")
    return 0
