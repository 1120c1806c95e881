"""kernelpack verify: compiles every kernel anew and compares with the lock file, bit for bit; or compares a folder with its manifest."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernelpack.cli.build import add_checked_argument, add_jobs_argument, add_trace_argument
from kernelpack.cli.targets import add_target_argument, parse_targets
from kernelpack.cli.terminal import ProgressLine, Style, count
from kernelpack.errors import BuildError
from kernelpack.knobs.environment import is_count
from kernelpack.runtime.packs import INDEX

if TYPE_CHECKING:
    from kernelpack.opgen.build import Verified

PURPOSE = "compile every kernel anew, ignoring caches, and compare with the lock file; or compare a folder with its manifest"
SHOWN = 20
"""Differences that are printed; --json has all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        nargs="*",
        type=Path,
        metavar="SOURCE",
        help="a file with ops, or a folder of such files; or a folder that kernelpack adopt wrote",
    )
    parser.add_argument("--namespace", metavar="NAME", help="the namespace of the build")
    parser.add_argument(
        "--manifest",
        type=Path,
        metavar="DIR",
        help="compile nothing: compare this folder, and the SOURCEs that are named, with the folder's manifest.json",
    )
    parser.add_argument(
        "--public-key", type=Path, metavar="FILE", help="with --manifest: whose signature the manifest must have"
    )
    parser.add_argument(
        "--lock", type=Path, metavar="FILE", help="the lock file (default: that of the library, whose packs are compared too)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the library is (default: ./NAME)")
    add_target_argument(parser, required=False, default=" (default: the lock file's)")
    parser.add_argument(
        "--share",
        type=share,
        metavar="K/N",
        help="only the K-th of N parts of the kernels, for all targets; all N together have all",
    )
    add_trace_argument(parser)
    add_checked_argument(parser)
    add_jobs_argument(parser)


def share(text: str) -> tuple[int, int]:
    """Returns K and N of K/N, the K-th of N parts. Raises ArgumentTypeError for what is none."""
    part, _, parts = text.partition("/")
    if not (is_count(part) and is_count(parts) and int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no part of a whole; write 1/3, 2/3 or 3/3")
    return int(part), int(parts)


def run(arguments: argparse.Namespace) -> int:
    if arguments.manifest is not None:
        return _verify_manifest(arguments)
    if arguments.public_key is not None:
        raise BuildError("--public-key is for manifests", cure="write --manifest DIR, too")
    if len(arguments.sources) == 1 and (arguments.sources[0] / INDEX).is_file():
        return _verify_adopted(arguments)
    if not arguments.sources or arguments.namespace is None:
        raise BuildError(
            "what to verify is not named", cure="kernelpack verify SOURCE --namespace NAME, or kernelpack verify --manifest DIR"
        )
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
            share=arguments.share,
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


def _verify_adopted(arguments: argparse.Namespace) -> int:
    from kernelpack.adopt.build import verify

    folder, started = arguments.sources[0], time.monotonic()
    with ProgressLine() as progress:
        compared, differing, absent = verify(
            folder, records=[arguments.trace] if arguments.trace else (), jobs=arguments.jobs, progress=progress
        )
    seconds = time.monotonic() - started
    if arguments.json:
        record = {"folder": str(folder), "kernels": compared, "differences": differing, "not compared": absent}
        print(json.dumps({**record, "seconds": round(seconds, 3)}, indent=1))
        return 1 if differing else 0
    made = f"{count(compared, 'variant')} compiled anew in {seconds:.1f} s"
    if differing:
        print(_differs(made, differing, folder / INDEX, f"get {folder} again, or adopt it again"))
    else:
        style = Style(sys.stdout)
        said = style.green("verified") if compared else style.yellow("nothing compared")
        print(f"{said}: {made}, all as {folder / INDEX} states" if compared else said)
    for line in absent[:SHOWN]:
        print(f"  not compared: {line}")
    if len(absent) > SHOWN:
        print(f"  and {len(absent) - SHOWN} more; --json lists all")
    return 1 if differing else 0


def _verify_manifest(arguments: argparse.Namespace) -> int:
    from kernelpack.ship.manifest import NAME, compare, differing_sources, read_manifest
    from kernelpack.ship.signature import verify_signature

    folder, key = arguments.manifest, arguments.public_key
    manifest = read_manifest(folder) if key is None else verify_signature(folder, key)
    found = [*compare(folder, manifest).sentences(), *differing_sources(arguments.sources, manifest)]
    if arguments.json:
        record = {"manifest": str(folder / NAME), "signed": key is not None, "files": len(manifest.files), "differences": found}
        print(json.dumps(record, indent=1))
    elif found:
        print(_differs(count(len(manifest.files), "file"), found, folder / NAME, f"get {folder} again, or build it again"))
    else:
        signed = f", signed by the key of {key}" if key is not None else ""
        print(f"{Style(sys.stdout).green('verified')}: {count(len(manifest.files), 'file')} as {folder / NAME} states{signed}")
    return 1 if found else 0


def _text(verified: Verified) -> str:
    made = f"{count(len(verified.packs), 'kernel')} compiled anew in {verified.seconds:.1f} s"
    if not verified.differences:
        return f"{Style(sys.stdout).green('verified')}: {made}, all as {verified.lock} states"
    return _differs(made, verified.differences, verified.lock, "if the change is meant, build again and keep the new lock file")


def _differs(what: str, differences: Sequence[str], stated: Path, cure: str) -> str:
    style = Style(sys.stdout)
    lines = [f"{style.red('differs')}: {what}, {count(len(differences), 'difference')} from {stated}"]
    lines += [f"  {difference}" for difference in differences[:SHOWN]]
    if len(differences) > SHOWN:
        lines.append(f"  and {len(differences) - SHOWN} more; --json lists all")
    lines.append(f"  {style.bold('to fix:')} {cure}")
    return "\n".join(lines)
