"""kernelpack hub: writes a built folder as a repository of Hugging Face's `kernels`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kernelpack.cli.terminal import Style, count

PURPOSE = "write a built library as a repository that Hugging Face's kernels loads"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("library", type=Path, metavar="DIR", help="the folder that kernelpack build wrote")
    parser.add_argument("--out", type=Path, required=True, metavar="REPOSITORY", help="the folder of the repository")
    parser.add_argument(
        "--license", required=True, metavar="NAME", help="the ops' licence, as the Hub writes it: apache-2.0, mit"
    )
    parser.add_argument(
        "--kernel-version", type=int, default=1, metavar="N", help="the version that the Hub knows it by (default: 1)"
    )


def run(arguments: argparse.Namespace) -> int:
    from kernelpack.ship.hub import write_repository

    repository = arguments.out
    variants = write_repository(arguments.library, repository, license=arguments.license, version=arguments.kernel_version)
    if arguments.json:
        print(json.dumps({"repository": str(repository), "variants": [path.name for path in variants]}, indent=1))
        return 0
    style = Style(sys.stdout)
    lines = [f"{style.green('wrote')} {style.bold(str(repository))}: {count(len(variants), 'variant')}"]
    lines += [f"  {path.name}" for path in variants]
    lines += [style.dim("from Python"), "  import kernels", f'  kernels.get_local_kernel("{repository.resolve()}").ops']
    print("\n".join(lines))
    return 0
