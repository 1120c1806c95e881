"""kernelpack wheel: makes a wheel out of a built library, which pip installs wherever torch is."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kernelpack.cli.terminal import Style, size

PURPOSE = "make a wheel out of a built library, for every Python and every torch from 2.10 on"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("library", type=Path, metavar="DIR", help="the folder that kernelpack build wrote")
    parser.add_argument("--version", required=True, metavar="VERSION", help="the version of the package, such as 0.1.0")
    parser.add_argument("--name", metavar="NAME", help="what pip calls it (default: the namespace, which is what is imported)")
    parser.add_argument("--license", type=Path, metavar="FILE", help="a licence to put into it")
    parser.add_argument("--out", type=Path, default=Path("dist"), metavar="DIR", help="where the wheel goes (default: ./dist)")


def run(arguments: argparse.Namespace) -> int:
    from kernelpack.opgen.wheel import make_wheel

    made = make_wheel(
        arguments.library, version=arguments.version, name=arguments.name, out=arguments.out, licence=arguments.license
    )
    if not made.is_portable:
        what = f"only {made.platform}: it needs a newer C library, or others, than any manylinux has; no index of packages takes it"
        print(f"kernelpack wheel: {Style(sys.stderr).yellow('warning:')} {what}", file=sys.stderr)
    if arguments.json:
        record = {
            "path": str(made.path),
            "platform": made.platform,
            "targets": list(made.targets),
            "files": list(made.files),
            "size": made.path.stat().st_size,
        }
        print(json.dumps(record, indent=1))
        return 0
    style = Style(sys.stdout)
    print(f"{style.green('wrote')} {style.bold(str(made.path))}  {size(made.path.stat().st_size)}")
    print(f"  {made.platform}, any Python from 3.10 and torch from 2.10 on")
    print("\n".join(f"  {target}" for target in made.targets))
    return 0
