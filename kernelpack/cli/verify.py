"""kernelpack verify: compiles every kernel anew and compares with the lock file, bit for bit."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kernelpack.cli.build import add_checked_argument, add_jobs_argument, add_trace_argument
from kernelpack.cli.targets import add_target_argument, parse_targets
from kernelpack.cli.terminal import ProgressLine, Style, count

if TYPE_CHECKING:
    from kernelpack.opgen.build import Verified

PURPOSE = "compile every kernel anew, ignoring caches, and compare with the lock file"
SHOWN = 20
"""Differences that are printed; --json has all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sources", nargs="+", type=Path, metavar="SOURCE", help="a file with ops, or a folder of such files")
    parser.add_argument("--namespace", required=True, metavar="NAME", help="the namespace of the build")
    parser.add_argument(
        "--lock", type=Path, metavar="FILE", help="the lock file (default: that of the library, whose packs are compared too)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the library is (default: ./NAME)")
    add_target_argument(parser, required=False, default=" (default: the lock file's)")
    add_trace_argument(parser)
    add_checked_argument(parser)
    add_jobs_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    from kernelpack.opgen.build import verify

    targets = parse_targets(arguments.target) if arguments.target else None
    with ProgressLine() as progress:
        verified = verify(
            arguments.sources,
            namespace=arguments.namespace,
            targets=targets,
            trace=arguments.trace,
            out=arguments.out,
            lock=arguments.lock,
            jobs=arguments.jobs,
            progress=progress,
            checked=arguments.checked,
        )
    if arguments.json:
        record = {
            "lock": str(verified.lock),
            "kernels": len(verified.packs),
            "differences": list(verified.differences),
            "seconds": round(verified.seconds, 3),
        }
        print(json.dumps(record, indent=1))
    else:
        print(_text(verified))
    return 1 if verified.differences else 0


def _text(verified: Verified) -> str:
    style = Style(sys.stdout)
    made = f"{count(len(verified.packs), 'kernel')} compiled anew in {verified.seconds:.1f} s"
    if not verified.differences:
        return f"{style.green('verified')}: {made}, all as {verified.lock} states"
    lines = [f"{style.red('differs')}: {made}, {count(len(verified.differences), 'difference')} from {verified.lock}"]
    lines += [f"  {difference}" for difference in verified.differences[:SHOWN]]
    if len(verified.differences) > SHOWN:
        lines.append(f"  and {len(verified.differences) - SHOWN} more; --json lists all")
    lines.append(f"  {style.bold('to fix:')} if the change is meant, build again and keep the new lock file")
    return "\n".join(lines)
