"""kernelpack sign: signs the manifest of a built folder, by which nothing of it runs once it is altered."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kernelpack.cli.terminal import Style

PURPOSE = "sign the manifest of a built library with a key, for kernelpack.load(..., public_key=...) and verify --manifest"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("library", type=Path, metavar="DIR", help="the folder that kernelpack build wrote")
    parser.add_argument(
        "--key",
        type=Path,
        required=True,
        metavar="FILE",
        help="the private key: of an elliptic curve, in PEM, without a password",
    )


def run(arguments: argparse.Namespace) -> int:
    from kernelpack.ship.signature import sign

    file = sign(arguments.library, arguments.key)
    if arguments.json:
        print(json.dumps({"signature": str(file)}, indent=1))
    else:
        print(f"{Style(sys.stdout).green('signed')} {arguments.library}\n  {file}")
    return 0
