"""Prints a profile as a tree with metrics: python -m kernelpack.profiler.viewer -m tflop16/s,time/ms NAME.hatchet"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelpack.errors import KernelpackError, ProfilerError
from kernelpack.files.document import Either, Shape, checked, read_document

_SCALES = {"": 1.0, "g": 1e9, "t": 1e12}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_RATE = re.compile(r"([gt]?)(flop(?:8|16|32|64)?|byte)/s")
_TIME = re.compile(r"(avg_)?((?:cpu_)?time)/(s|ms|us|ns)")
_KINDS = """metrics of the file (--list), and what follows from them:
  time/ms, cpu_time/us, ...      s, ms, us or ns
  avg_time/us, ...               the same, of one kernel
  flop/s, tflop16/s, gbyte/s, ... flops, flops16, bytes by the time; g and t are 1e9 and 1e12
  NAME/%                         of the whole"""


@dataclass
class Node:
    """A frame with a value of each metric that was asked for; NaN where it has none."""

    name: str
    values: list[float]
    children: list[Node]


@dataclass(frozen=True)
class _Summed:
    """A frame of the file. `total` are metrics with those of the frames below, `own` its own."""

    name: str
    total: Mapping[str, float]
    own: Mapping[str, float]
    children: list[_Summed]


def parse(
    metrics: Sequence[str],
    filename: str | Path,
    include: str | None = None,
    exclude: str | None = None,
    threshold: float | None = None,
) -> tuple[Node, list[str]]:
    """Returns a profile's tree and the names of its metrics, which are those that were asked for.

    `include` and `exclude` are regular expressions: frames that match with all above and below them, or without the frames that match and
    those below. Frames whose first metric is below `threshold` are left out. Raises ProfilerError for a metric that the file has not, and for
    what is no regular expression.
    """
    root = _read(filename)
    values = [_derive(metric, root) for metric in metrics]
    tree = _node(root, values)
    if include is not None:
        tree.children = [*_matching(tree.children, _pattern(include))]
    if exclude is not None or threshold is not None:
        unwanted = _pattern(exclude) if exclude is not None else None
        _drop(tree, lambda node: (unwanted is not None and bool(unwanted.match(node.name))) or _below(node, threshold))
    return tree, list(metrics)


def print_tree(tree: Node, metrics: Sequence[str], depth: int = 100) -> None:
    """Prints a tree: of each frame the metrics, in their order, and the name."""
    print("  ".join(metrics))
    for line in _lines(tree, "", "", depth):
        print(line)


def _lines(node: Node, first: str, rest: str, depth: int) -> Iterator[str]:
    figures = " ".join("-" if math.isnan(value) else f"{value:.3f}" for value in node.values)
    yield f"{first}{figures} {node.name}"
    if depth > 0:
        for child in node.children:
            last = child is node.children[-1]
            yield from _lines(child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "), depth - 1)


_FRAME: dict[Any, Shape] = {
    "frame": {"name": str, ...: object},
    "metrics": {...: Either(float, str, bool | None, [object], {...: object})},
    ...: object,
}
_FRAME["children"] = [_FRAME]


def _read(filename: str | Path) -> _Summed:
    try:
        found = read_document(Path(filename).read_bytes(), (object, ...))
        root = checked(found[0], _FRAME, "[0]")
        return _summed(root, frozenset(root["metrics"]))
    except RecursionError:
        reason = "its frames are nested too deep"
    except (OSError, ValueError) as problem:
        reason = str(problem)
    raise ProfilerError(f"{filename} is no profile: {reason}", cure="give the file that kernelpack.profiler.finalize wrote")


def _summed(frame: dict[str, Any], names: frozenset[str]) -> _Summed:
    children = [_summed(child, names) for child in frame["children"]]
    own = {name: value for name, value in frame["metrics"].items() if isinstance(value, (int, float))}
    parts = [own, *(child.total for child in children)]
    total = {name: sum(part[name] for part in parts if name in part) for name in names if any(name in part for part in parts)}
    return _Summed(frame["frame"]["name"], total, own, children)


def _walk(frame: _Summed) -> Iterator[_Summed]:
    yield frame
    for child in frame.children:
        yield from _walk(child)


def _derive(metric: str, root: _Summed) -> Callable[[_Summed], float]:
    """Returns what computes a metric of a frame."""
    rate, time = _RATE.fullmatch(metric), _TIME.fullmatch(metric)
    if rate is not None:
        scale, amount = rate.groups()
        done, took = _raw(amount.replace("flop", "flops").replace("byte", "bytes"), root), _raw("time", root)
        return lambda frame: _ratio(done(frame), took(frame) * 1e-9 * _SCALES[scale])
    if time is not None:
        average, name, unit = time.groups()
        took, count = _raw(name, root), _raw("count", root) if average else lambda frame: 1.0
        return lambda frame: _ratio(took(frame) * 1e-9, count(frame) * _SECONDS[unit])
    if metric.endswith("/%"):
        part = _raw(metric.removesuffix("/%"), root)
        return lambda frame: _ratio(100 * part(frame), part(root))
    return _raw(metric, root)


def _raw(metric: str, root: _Summed) -> Callable[[_Summed], float]:
    """Returns what reads a metric of the file, whose name may have a unit: `time` is "time (ns)"."""
    known = {name.partition(" (")[0]: name for frame in _walk(root) for name in (*frame.total, *frame.own)}
    if metric not in known:
        raise ProfilerError(
            f"there is no metric {metric!r}", cure=f"choose among {', '.join(sorted(known))}, or what follows from them"
        )
    name = known[metric]
    if name in root.total:
        return lambda frame: frame.total.get(name, math.nan)
    return lambda frame: frame.own.get(name, math.nan)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _node(frame: _Summed, values: Sequence[Callable[[_Summed], float]]) -> Node:
    return Node(frame.name, [value(frame) for value in values], [_node(child, values) for child in frame.children])


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as problem:
        raise ProfilerError(
            f"{text!r} is no regular expression: {problem}", cure="put \\ before ( ) [ ] * + ? | . and \\"
        ) from None


def _matching(nodes: Sequence[Node], wanted: re.Pattern[str]) -> Iterator[Node]:
    for node in nodes:
        below = [*_matching(node.children, wanted)]
        if wanted.match(node.name):
            yield node
        elif below:
            yield Node(node.name, node.values, below)


def _drop(node: Node, unwanted: Callable[[Node], bool]) -> None:
    node.children = [child for child in node.children if not unwanted(child)]
    for child in node.children:
        _drop(child, unwanted)


def _below(node: Node, threshold: float | None) -> bool:
    return threshold is not None and not node.values[0] >= threshold


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m kernelpack.profiler.viewer", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("file", type=Path, help="what kernelpack.profiler.finalize wrote")
    parser.add_argument("-l", "--list", action="store_true", help="print the metrics of the file")
    parser.add_argument("-m", "--metrics", default="time/ms", help=_KINDS.replace("%", "%%"))
    parser.add_argument("-i", "--include", metavar="REGEX", help="show frames that match, and what is above and below them")
    parser.add_argument("-e", "--exclude", metavar="REGEX", help="leave out frames that match, and what is below them")
    parser.add_argument("-t", "--threshold", type=float, help="leave out frames whose first metric is less")
    parser.add_argument("-d", "--depth", type=int, default=100, help="how many levels are shown")
    given = parser.parse_args()
    try:
        if given.list:
            names = {name.partition(" (")[0] for frame in _walk(_read(given.file)) for name in (*frame.total, *frame.own)}
            print("\n".join(sorted(names)))
        else:
            print_tree(
                *parse(given.metrics.split(","), given.file, given.include, given.exclude, given.threshold), depth=given.depth
            )
    except KernelpackError as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
