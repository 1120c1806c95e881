"""kernelpack tune: finds the fastest of several configs on this machine's devices; builds then hold those alone."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelpack.cli.build import add_jobs_argument, add_op_argument
from kernelpack.cli.targets import add_target_argument, parse_targets
from kernelpack.cli.terminal import ProgressLine, Style, count, table, width

if TYPE_CHECKING:
    from kernelpack.opgen.tune.race import Raced
    from kernelpack.opgen.variants.decisions import PointDecision

PURPOSE = "race the configs that ops choose among on this machine, and keep the times beside the ops"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sources", nargs="+", type=Path, metavar="SOURCE", help="a file with ops, or a folder of such files")
    add_target_argument(parser, default=" (default: what fits this machine's devices best)", required=False)
    add_op_argument(parser)
    parser.add_argument("--show", action="store_true", help="race nothing: print which config calls get, by their sizes")
    parser.add_argument("--again", action="store_true", help="forget what earlier runs measured on this machine")
    add_jobs_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    from kernelpack.opgen.tune.race import decisions, native_targets, tune

    targets = parse_targets(arguments.target) if arguments.target else native_targets()
    raced: Raced | None = None
    if not arguments.show:
        with ProgressLine() as progress:
            raced = tune(
                arguments.sources,
                targets=targets,
                ops=arguments.op,
                again=arguments.again,
                jobs=arguments.jobs,
                progress=progress,
            )
    found = decisions(arguments.sources, targets=targets, ops=arguments.op)
    if arguments.json:
        print(json.dumps(_record(raced, found), indent=1))
    else:
        print("\n".join([*(_summary(raced) if raced else []), *_text(found)]))
    return 0


def _record(raced: Raced | None, found: list[PointDecision]) -> dict[str, Any]:
    record: dict[str, Any] = {"points": [point.record() for point in found]}
    if raced is not None:
        record |= {"files": [str(file) for file in raced.files], "raced": raced.run, "known": raced.known}
        record["seconds"] = round(raced.seconds, 3)
    return record


def _summary(raced: Raced) -> list[str]:
    style = Style(sys.stdout)
    earlier = f", {raced.known} known from earlier runs" if raced.known else ""
    return [
        f"{style.green('tuned')} {count(raced.run, 'race')} in {raced.seconds:.0f} s{earlier}",
        *(f"  {file}" for file in raced.files),
        "",
    ]


def _text(found: list[PointDecision]) -> list[str]:
    from kernelpack.opgen.variants.decisions import config_text

    style = Style(sys.stdout)
    lines: list[str] = []
    for point in found:
        decision = point.decision
        devices = f", measured on {' and '.join(point.devices)}" if point.devices else ", not measured: the first config"
        lines.append(f"{style.bold(point.name)} for {point.target}{style.dim(devices)}")
        numbers = range(len(point.fastest.configs)) if not point.devices else decision.configs
        lines += [f"  #{number}  {config_text(point.fastest.configs[number])}" for number in numbers]
        if len(decision.configs) > 1:
            rows = [[*texts, f"#{number}"] for texts, number in decision.rows()]
            lines += table([*decision.key, "config"], rows, columns=width(sys.stdout), indent=6)
        if point.devices:
            lines.append(style.dim(f"      {point.gain_text()}"))
        lines.append("")
    return lines[:-1]
