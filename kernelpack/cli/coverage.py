"""kernelpack coverage: which calls the variants of op files cover, which variants no call reaches, and which fit the same calls."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelpack.cli.build import add_op_argument
from kernelpack.cli.targets import add_target_argument, parse_targets
from kernelpack.cli.terminal import Style, count, table, width

if TYPE_CHECKING:
    from kernelpack.opgen.variants.coverage import LaunchCoverage

PURPOSE = "show which calls the variants of op files cover, and which variants no call reaches"
SHOWN = 10
"""Findings of a kind that are printed; --json has all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sources", nargs="+", type=Path, metavar="SOURCE", help="a file with ops, or a folder of such files")
    parser.add_argument("--namespace", metavar="NAME", default="ops", help="the namespace of the build (default: ops)")
    add_op_argument(parser)
    add_target_argument(parser, required=False, default=" (default: cpu:native)")


def run(arguments: argparse.Namespace) -> int:
    from kernelpack.opgen.build import plan_library
    from kernelpack.opgen.sources import check_op_names
    from kernelpack.opgen.variants.coverage import coverage

    targets = parse_targets(arguments.target or ["cpu:native"])
    plan = plan_library(arguments.sources, namespace=arguments.namespace, targets=targets)
    check_op_names(arguments.op, (op.name for op in plan.ops))
    wanted = [op for op in plan.op_plans if not arguments.op or op.host.name in arguments.op]
    found = [one for op in wanted for one in coverage(op, plan.targets)]
    print(json.dumps([_record(one) for one in found], indent=1) if arguments.json else _text(found))
    return 0


def _record(one: LaunchCoverage) -> dict[str, Any]:
    return {
        "op": one.op,
        "kernel": one.kernel,
        "line": one.line,
        "target": str(one.target),
        "points": one.points,
        "reached": one.reached,
        "variants": one.variants,
        "unreachable": [{"variant": name, "reason": reason} for name, reason in one.unreachable.items()],
        "overlapping": [{"first": pair.first, "second": pair.second} for pair in one.overlapping],
        "uncovered": [{name: list(values) for name, values in region.items()} for region in one.uncovered],
    }


def _text(found: list[LaunchCoverage]) -> str:
    from kernelpack.opgen.variants.coverage import words

    style = Style(sys.stdout)
    header = ("op and kernel", "target", "points", "reached", "variants", "unreachable", "overlapping", "uncovered")
    rows = [
        (
            f"{one.op}  {one.kernel}:{one.line}",
            str(one.target),
            *map(str, (one.points, one.reached, one.variants)),
            *map(str, map(len, (one.unreachable, one.overlapping, one.uncovered))),
        )
        for one in found
    ]
    lines = table(header, rows, columns=width(sys.stdout), indent=0)
    lines[0] = style.bold(lines[0])
    uncovered = [f"{one.kernel} on {one.target}: {words(region)}" for one in found for region in one.uncovered]
    unreachable = [f"{name} for {one.target}, line {one.line}: {why}" for one in found for name, why in one.unreachable.items()]
    overlapping = [f"{p.first} and {p.second} for {one.target}: the first is taken" for one in found for p in one.overlapping]
    for title, texts in (
        (style.red("uncovered: calls of these are refused"), uncovered),
        (style.yellow("unreachable: no call gets these variants from the launch in that line"), unreachable),
        (style.yellow("overlapping: both fit some calls"), overlapping),
    ):
        if texts:
            lines += ["", title, *(f"  {text}" for text in texts[:SHOWN])]
            lines += [f"  and {len(texts) - SHOWN} more: --json lists them"] if len(texts) > SHOWN else []
    if not uncovered and not unreachable and not overlapping:
        lines += ["", style.green(f"every call of {count(len({one.op for one in found}), 'op')} has one variant")]
    return "\n".join(lines)
