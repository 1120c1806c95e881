"""kernelpack trace: what a running model called, the variants that cover it, and what a library would miss."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelpack.cli.terminal import Style, count, table, width

if TYPE_CHECKING:
    from kernelpack.opgen.trace import NeededVariant, Trace

PURPOSE = "rank the variants that a recorded run needs, and say what a library lacks of them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="what a process with KERNELPACK_TRACE=FILE wrote")
    parser.add_argument(
        "--library",
        type=Path,
        metavar="DIR",
        help="compare with the library that kernelpack build wrote there (default: kernelpack's)",
    )
    parser.add_argument("--shapes", action="store_true", help="print the shapes of each variant's calls, too")


def run(arguments: argparse.Namespace) -> int:
    from kernelpack.opgen.trace import read_trace

    trace = read_trace(arguments.file, arguments.library)
    if arguments.json:
        print(json.dumps(_record(trace), indent=1))
    else:
        print("\n".join(_text(trace, arguments.shapes)))
    return 1 if trace.missed else 0


def _record(trace: Trace) -> dict[str, Any]:
    return {
        "calls": trace.calls,
        "variants": [asdict(variant) for variant in trace.variants],
        "refusals": [asdict(refusal) for refusal in trace.refusals],
        "library": None if trace.library is None else str(trace.library),
        "missed": trace.missed,
        "kernels": trace.kernels,
    }


def _text(trace: Trace, with_shapes: bool) -> list[str]:
    style = Style(sys.stdout)
    total = sum(trace.calls.values())
    verdict = style.red(f"{count(trace.missed, 'call')} missed") if trace.missed else style.green("all covered")
    where = f" by {trace.library}" if trace.library is not None else ""
    lines = [f"{count(total, 'call')} of {count(len(trace.calls), 'op')}: {verdict}{where}"] if trace.calls else []
    if trace.kernels:
        launched = (
            f"{count(sum(trace.kernels.values()), 'variant')} of {count(len(trace.kernels), 'kernel')} launched from Python"
        )
        lines.append(f"{launched}; kernelpack adopt compiles them ahead of time")
        if not trace.calls:
            rows = [[kernel, str(number)] for kernel, number in trace.kernels.items()]
            lines += ["", *table(["kernel", "variants"], rows, columns=width(sys.stdout))]
    if trace.variants:
        rows = [
            [v.name, v.target, str(v.calls), f"{100 * v.calls / total:.1f} %", str(len(v.shapes)), *_library(trace, v)]
            for v in trace.variants
        ]
        header = ["variant", "target", "calls", "share", "shapes", *(["library"] if trace.library is not None else [])]
        printed = table(header, rows, columns=width(sys.stdout))
        lines += ["", printed[0]]
        for line, variant in zip(printed[1:], trace.variants, strict=True):
            lines.append(line)
            lines += (
                [f"    {count(calls, 'call')}: {shapes}" for shapes, calls in variant.shapes.items()] if with_shapes else []
            )
    for refusal in trace.refusals:
        head, *rest = refusal.message.splitlines() or [""]
        lines += ["", f"{style.red('refused')} {count(refusal.calls, 'call')}: {head}", *rest]
        lines += [f"    {count(calls, 'call')}: {shapes}" for shapes, calls in refusal.shapes.items()] if with_shapes else []
    return lines


def _library(trace: Trace, variant: NeededVariant) -> list[str]:
    """Returns what the library's column says."""
    if trace.library is None:
        return []
    return ["yes" if variant.instead == variant.name else "missing" if variant.instead is None else ".any instead"]
