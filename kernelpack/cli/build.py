"""kernelpack build: op files become a library that torch loads."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelpack.cli.targets import add_target_argument, parse_targets
from kernelpack.cli.terminal import ProgressLine, Style, count, size
from kernelpack.errors import BuildError
from kernelpack.knobs.environment import is_count
from kernelpack.target import Target

if TYPE_CHECKING:
    from kernelpack.opgen.build import Built

PURPOSE = "compile op files and link them into a library of torch ops"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sources", nargs="+", type=Path, metavar="SOURCE", help="a file with ops, or a folder of such files")
    parser.add_argument("--namespace", required=True, metavar="NAME", help="the ops become torch.ops.NAME.*")
    add_target_argument(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the library goes (default: ./NAME)")
    add_trace_argument(parser)
    add_checked_argument(parser)
    parser.add_argument(
        "--emit-source", type=Path, metavar="DIR", help="write the library's complete C++ source there instead of building it"
    )
    add_jobs_argument(parser)
    parser.add_argument(
        "--line-tables", action="store_true", help="keep in the library which line of source its code for GPUs comes from"
    )
    parser.add_argument("--no-cache", action="store_true", help="take no kernel from earlier builds")


def add_jobs_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-j", "--jobs", type=_positive, metavar="N", help="how many processes compile (default: one for each CPU)"
    )


def add_checked_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--checked",
        action="store_true",
        help="for CPUs: hold every load, store and atomic to the storage of its tensor; calls end before the first access outside",
    )


def add_trace_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="leave out the variants that the calls which KERNELPACK_TRACE=FILE recorded do not need",
    )


def add_op_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--op", action="append", default=[], metavar="NAME", help="only this op; give it again for several")


def add_variant_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--variant", metavar="PATTERN", help="only variants with this in their name; * and ? stand for anything"
    )


def _positive(text: str) -> int:
    if not is_count(text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no number of processes from 1 to 9999; write -j 2")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    from kernelpack.opgen.build import build

    targets = parse_targets(arguments.target)
    if arguments.emit_source is not None:
        return _emit_source(arguments, targets)
    with ProgressLine(last_step="C++: compiling and linking") as progress:
        built = build(
            arguments.sources,
            namespace=arguments.namespace,
            targets=targets,
            trace=arguments.trace,
            out=arguments.out,
            jobs=arguments.jobs,
            progress=progress,
            cache=not arguments.no_cache,
            line_tables=arguments.line_tables,
            checked=arguments.checked,
        )
    _warn(built.warnings)
    print(json.dumps(_record(built), indent=1) if arguments.json else _text(built))
    return 0


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print(f"kernelpack build: {Style(sys.stderr).yellow('warning:')} {warning}", file=sys.stderr)


def _emit_source(arguments: argparse.Namespace, targets: list[Target]) -> int:
    from kernelpack.opgen.emit_source import emit_source

    if arguments.out is not None:
        raise BuildError("--out is for libraries, --emit-source for their source", cure="write one of them")
    with ProgressLine() as progress:
        emitted = emit_source(
            arguments.sources,
            namespace=arguments.namespace,
            targets=targets,
            trace=arguments.trace,
            directory=arguments.emit_source,
            jobs=arguments.jobs,
            progress=progress,
            cache=not arguments.no_cache,
            line_tables=arguments.line_tables,
            checked=arguments.checked,
        )
    _warn(emitted.warnings)
    if arguments.json:
        record = {
            "namespace": emitted.namespace,
            "directory": str(emitted.directory),
            "command": emitted.command,
            "files": list(map(str, emitted.files)),
            "kernels": len(emitted.packs),
            "warnings": list(emitted.warnings),
        }
        print(json.dumps(record, indent=1))
        return 0
    style = Style(sys.stdout)
    written = f"{count(len(emitted.files), 'file')}, {count(len(emitted.packs), 'kernel')} in {emitted.seconds:.1f} s"
    print(f"{style.green('wrote')} the source of {style.bold(emitted.namespace)}: {written}\n  {emitted.directory}\n")
    print(style.dim("one line builds it, wherever g++, libzstd-dev and libtorch >= 2.10 are; build.sh holds it, too"))
    print(f"  cd {shlex.quote(str(emitted.directory))} && {emitted.command}")
    return 0


def _record(built: Built) -> dict[str, Any]:
    return {
        "namespace": built.namespace,
        "directory": str(built.directory),
        "library": str(built.library),
        "ops": list(built.ops),
        "targets": _targets(built),
        "kernels": len(built.packs),
        "compiled": list(built.compiled),
        "cached": len(built.packs) - len(built.compiled),
        "seconds": round(built.seconds, 3),
        "warnings": list(built.warnings),
    }


def _targets(built: Built) -> list[str]:
    return list(dict.fromkeys(str(pack.target) for pack in built.packs))


def _text(built: Built) -> str:
    style = Style(sys.stdout)
    name, ops, compiled = built.namespace, built.ops, len(built.compiled)
    how = f"{compiled} compiled, {len(built.packs) - compiled} cached"
    lines = [
        f"{style.green('built')} {style.bold(name)}: {count(len(ops), 'op')}, {count(len(built.packs), 'kernel')} ({how})"
        f" in {built.seconds:.1f} s",
        f"  {built.library}  {size(built.library.stat().st_size)}",
        *(f"  {target}" for target in _targets(built)),
        "",
        style.dim("from Python"),
        "  import kernelpack",
        f'  kernelpack.load("{built.directory}")',
        f"  torch.ops.{name}.{ops[0]}(...)",
        style.dim("from C++, or load a TorchScript or AOTInductor model that calls it"),
        f'  dlopen("{built.library}", RTLD_NOW);',
        f'  auto op = c10::Dispatcher::singleton().findSchemaOrThrow("{name}::{ops[0]}", "");',
        "  op.callBoxed(stack);",
    ]
    return "\n".join(lines)
