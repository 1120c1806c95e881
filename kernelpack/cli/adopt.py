"""kernelpack adopt: compiles the kernels of other packages ahead of time, as a record of their launches says."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelpack.cli.build import add_jobs_argument
from kernelpack.cli.targets import add_target_argument, parse_targets, tell_caveats
from kernelpack.cli.terminal import ProgressLine, Style, count, size
from kernelpack.errors import BuildError
from kernelpack.files.whole import write_whole

if TYPE_CHECKING:
    from kernelpack.adopt.build import Adopted

PURPOSE = "compile the kernels that a recorded run launched, of any package, into a folder from which launches take them"
SHOWN = 20
"""Refusals that are printed; --json has all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="what processes with KERNELPACK_TRACE=FILE wrote; several are merged",
    )
    add_target_argument(parser, required=False)
    parser.add_argument(
        "--op",
        metavar="NAME",
        help="write an op for this kernel instead, as a Python file to complete: NAME.py in the folder --out, or here",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="the folder to write (default: packs)")
    add_jobs_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.op is not None:
        return _write_op(arguments)
    if not arguments.target:
        raise BuildError("no target is named", cure="write --target cpu:native,cuda:sm_90a, for example")
    from kernelpack.adopt.build import adopt

    targets = parse_targets(arguments.target)
    tell_caveats(targets)
    with ProgressLine("writing the folder") as progress:
        adopted = adopt(
            arguments.files, targets=targets, out=arguments.out or Path("packs"), jobs=arguments.jobs, progress=progress
        )
    if arguments.json:
        print(json.dumps(_record(adopted), indent=1))
    else:
        print("\n".join(_text(adopted)))
    return 1 if adopted.refused else 0


def _write_op(arguments: argparse.Namespace) -> int:
    from kernelpack.adopt.op_file import op_text
    from kernelpack.adopt.records import read_records

    name, text = op_text(read_records(arguments.files), arguments.op)
    file = (arguments.out or Path()) / f"{name}.py"
    if file.exists() or file.is_symlink():
        raise BuildError(f"{file} exists, and nothing is overwritten", cure="move it away, or name another folder: --out DIR")
    write_whole(file, text.encode())
    if arguments.json:
        print(json.dumps({"file": str(file)}, indent=1))
    else:
        print(
            f"{Style(sys.stdout).green('wrote')} {file}: complete its host function, then kernelpack build {file} --namespace NAME"
        )
    return 0


def _record(adopted: Adopted) -> dict[str, Any]:
    return {
        "folder": str(adopted.folder),
        "kernels": adopted.kernels,
        "variants": adopted.variants,
        "compiled": adopted.compiled,
        "bytes": adopted.bytes,
        "unknown licences": list(adopted.unknown_licences),
        "refused": [
            {"kernel": one.kernel, "target": one.target, "record": one.place, "problem": str(one.problem)}
            for one in adopted.refused
        ],
        "seconds": round(adopted.seconds, 3),
    }


def _text(adopted: Adopted) -> list[str]:
    style = Style(sys.stdout)
    made = f"{count(adopted.variants, 'variant')} of {count(adopted.kernels, 'kernel')}, {adopted.compiled} compiled now"
    lines = [f"{style.green('adopted')}: {made}, {size(adopted.bytes)} in {adopted.folder}, {adopted.seconds:.1f} s"]
    if adopted.unknown_licences:
        lines.append(
            f"{style.yellow('licence unknown')}: {', '.join(adopted.unknown_licences)}; see that you may pass their code on"
        )
    if adopted.refused:
        lines.append(f"{style.red('refused')}: {count(len(adopted.refused), 'variant')}")
        for one in adopted.refused[:SHOWN]:
            lines += [f"  {one.kernel} for {one.target}", *(f"    {line}" for line in str(one.problem).splitlines())]
        if len(adopted.refused) > SHOWN:
            lines.append(f"  and {len(adopted.refused) - SHOWN} more; --json lists all")
    lines.append(style.dim(f"serve with KERNELPACK_PACKS={adopted.folder.resolve()}"))
    return lines
