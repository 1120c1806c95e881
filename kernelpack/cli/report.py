"""kernelpack report: one HTML file that shows kernels line by line through all stages, their figures, a library's sizes, benchmarks."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelpack.cli.build import add_jobs_argument, add_op_argument, add_variant_argument
from kernelpack.cli.targets import add_target_argument, parse_targets, tell_caveats
from kernelpack.cli.terminal import ProgressLine, count, size
from kernelpack.errors import BuildError, OptionError

if TYPE_CHECKING:
    from kernelpack.report.kernels import Kernels

PURPOSE = "write one HTML file that shows kernels beside all stages of their compilation"
LIMIT = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        nargs="+",
        type=Path,
        metavar="SOURCE",
        help="files with ops, or folders of such files; the folder of a built library; or both: the library and what it was built from",
    )
    parser.add_argument(
        "--namespace", metavar="NAME", help="the namespace of the build (default: ops, or that of the built library)"
    )
    add_target_argument(parser, required=False, default=" (default: cpu:native, or all that the library has)")
    add_op_argument(parser)
    add_variant_argument(parser)
    parser.add_argument(
        "--limit",
        type=_limit,
        default=LIMIT,
        metavar="N",
        help=f"show the stages of at most N kernels, one of each before a second of any (default: {LIMIT}); the table has all kernels",
    )
    parser.add_argument(
        "--benchmark",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="draw the figures that python -m benchmarks.SUBJECT --json FILE wrote; give it again for several",
    )
    parser.add_argument("--out", type=Path, default=Path("report.html"), metavar="FILE", help="the page (default: report.html)")
    add_jobs_argument(parser)


def _limit(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no number of kernels; write --limit {LIMIT}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    from kernelpack.cli.inspect import select
    from kernelpack.files import generated
    from kernelpack.opgen.size import sizes
    from kernelpack.report.kernels import choose, staged
    from kernelpack.report.page import Report, page
    from kernelpack.report.plot import plots_of

    generated.check(arguments.out)
    folders = [source for source in arguments.sources if (source / "packs").is_dir()]
    if len(folders) > 1:
        raise OptionError("a report shows one built library", cure="name one of them, and write a report for each")
    plots = [plot for file in arguments.benchmark for plot in plots_of(file)]
    with ProgressLine(last_step="reading lines") as progress:
        kernels = _kernels(arguments, folders, progress)
        packs = select(kernels.packs, arguments, None)
        shown = staged(kernels, choose(packs, arguments.limit), arguments.jobs, progress)
    library = sizes(folders[0]) if folders else None
    text = page(Report(f"kernelpack report: {kernels.namespace}", packs, shown, library, plots))
    generated.write(arguments.out, text)
    record: dict[str, Any] = {"page": str(arguments.out), "kernels": len(packs), "with_stages": len(shown), "bytes": len(text)}
    print(json.dumps(record, indent=1) if arguments.json else _said(record, bool(kernels.variants)))
    return 0


def _kernels(arguments: argparse.Namespace, folders: list[Path], progress: ProgressLine) -> Kernels:
    from kernelpack.report.kernels import kernels_of_files, kernels_of_folder

    files = [source for source in arguments.sources if source not in folders]
    targets = parse_targets(arguments.target) if arguments.target else None
    tell_caveats(targets or [])
    if not folders:
        return kernels_of_files(
            files,
            namespace=arguments.namespace or "ops",
            targets=targets or parse_targets(["cpu:native"]),
            jobs=arguments.jobs,
            progress=progress,
        )
    if arguments.namespace is not None:
        raise BuildError("the built library says its namespace", cure="leave --namespace out")
    return kernels_of_folder(folders[0], files, targets)


def _said(record: dict[str, Any], has_files: bool) -> str:
    few = record["with_stages"] < record["kernels"]
    lines = [f"wrote {record['page']}  {size(record['bytes'])}, {count(record['kernels'], 'kernel')}"]
    lines += [f"  the stages of {record['with_stages']} of them; --op, --variant and --limit choose others"] if few else []
    lines += [] if has_files else ["  machine code alone: name the op files beside the folder for source and stages"]
    return "\n".join(lines)
