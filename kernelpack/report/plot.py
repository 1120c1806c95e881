"""Plots of benchmarks as SVG: what kernelpack and its peers reach in each case, from the JSON that a benchmark writes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from kernelpack.errors import BuildError
from kernelpack.files.document import read_document

LOWER_IS_BETTER = ("s", "ns", "us", "kernels")
"""Units of which less is better."""
OURS = "kernelpack"
_SHAPE = {
    "machine": {...: object},
    "versions": {...: object},
    "rows": [
        {"case": str, "unit": str, "ours": float, "peer": str, "theirs": float, "ratio?": float, "limit?": float, "pass?": bool}
    ],
}
_STYLE = """
.kp-plot { font: 13px system-ui, sans-serif; }
.kp-plot text { fill: #1f2328; } .kp-plot .kp-soft { fill: #59636e; } .kp-plot .kp-name { font-size: 16px; font-weight: 600; }
.kp-plot .kp-back { fill: #ffffff; } .kp-plot .kp-grid { stroke: #d1d9e0; } .kp-plot .kp-span { stroke: #afb8c1; stroke-width: 2; }
.kp-plot .kp-0 { fill: #0969da; stroke: #0969da; } .kp-plot .kp-1 { fill: #ffffff; stroke: #bc4c00; }
.kp-plot .kp-2 { fill: #ffffff; stroke: #1a7f37; } .kp-plot .kp-3 { fill: #ffffff; stroke: #8250df; }
.kp-plot .kp-mark { stroke-width: 2; }
@media (prefers-color-scheme: dark) {
.kp-plot text { fill: #e6edf3; } .kp-plot .kp-soft { fill: #9198a1; } .kp-plot .kp-back { fill: #0d1117; }
.kp-plot .kp-grid { stroke: #2b323b; } .kp-plot .kp-span { stroke: #59636e; }
.kp-plot .kp-0 { fill: #4493f8; stroke: #4493f8; } .kp-plot .kp-1 { fill: #0d1117; stroke: #f0883e; }
.kp-plot .kp-2 { fill: #0d1117; stroke: #3fb950; } .kp-plot .kp-3 { fill: #0d1117; stroke: #ab7df8; }
}
"""
_WIDTH, _ROW, _RIGHT = 860, 22, 92
_SHAPES = (
    ((-4.5, -4.5), (4.5, -4.5), (4.5, 4.5), (-4.5, 4.5)),
    ((0, -6), (6, 0), (0, 6), (-6, 0)),
    ((0, -6), (5.5, 4.5), (-5.5, 4.5)),
)
"""A square, a diamond, a triangle."""
_LETTER = 7.2
"""How wide a letter of 13 px is at most, on average."""
_LEAST = 1e-30
"""No benchmark measures less, nor more than its inverse."""
_LOG = 30
"""An axis whose largest value is so many times its smallest is logarithmic."""


@dataclass(frozen=True)
class Figures:
    """The cases of one unit: what each contender reaches, kernelpack first. `machine` says where."""

    subject: str
    machine: str
    unit: str
    cases: Mapping[str, Mapping[str, float]]

    @property
    def contenders(self) -> list[str]:
        """Returns the names of all, in order."""
        return list(dict.fromkeys(name for values in self.cases.values() for name in values))

    @property
    def title(self) -> str:
        """Returns what a plot of them is called."""
        return f"{self.subject}, {self.unit}"


def figures_of(file: Path, only: str = "", peers: Sequence[str] = ()) -> list[Figures]:
    """Returns the figures of a benchmark's file, a unit each: of cases with all words of `only` in their names, and of these peers (default:
    all). Raises BuildError for another file."""
    try:
        record = read_document(file.read_bytes(), _SHAPE)
        _check(record["rows"])
    except ValueError as problem:
        raise BuildError(
            f"{file} holds no figures: {problem}", cure="write it with python -m benchmarks.SUBJECT --json FILE"
        ) from None
    units: dict[str, dict[str, dict[str, float]]] = {}
    for row in record["rows"]:
        wanted = all(word in row["case"].split() for word in only.split()) and (not peers or row["peer"] in peers)
        if wanted and row["peer"] != "limit":
            case = units.setdefault(row["unit"], {}).setdefault(row["case"], {OURS: row["ours"]})
            case[row["peer"]] = row["theirs"]
    subject, _, _ = file.stem.rpartition("-")
    return [
        Figures(" ".join(filter(None, [subject or file.stem, only])), _machine(record), unit, cases)
        for unit, cases in units.items()
    ]


def _check(rows: Sequence[Mapping[str, Any]]) -> None:
    """Raises ValueError, with its place, for a figure that no axis has."""
    for number, row in enumerate(rows):
        for name in ("ours", "theirs"):
            if not _LEAST < row[name] < 1 / _LEAST:
                raise ValueError(
                    f"rows[{number}].{name}: expected a number above {_LEAST:g} and below {1 / _LEAST:g}, found {row[name]}"
                )


def plots_of(file: Path) -> list[str]:
    """Returns the SVGs of all figures of a benchmark's file. Raises BuildError for another file."""
    return [plot(figures) for figures in figures_of(file)]


def _machine(record: Mapping[str, Any]) -> str:
    machine, versions = record["machine"], record["versions"]
    device = (
        str(machine["gpu"]) if "gpu" in machine else f"{machine.get('cpu', 'unknown CPU')}, {machine.get('cores', '?')} cores"
    )
    return ", ".join([device, *(f"{name} {versions[name]}" for name in ("torch", "cuda", "cudnn") if name in versions)])


def plot(figures: Figures) -> str:
    """Returns an SVG with a row for each case: a mark for each contender on an axis of the unit, and the ratio to the first peer."""
    names = figures.contenders
    values = [value for case in figures.cases.values() for value in case.values()]
    left = 24 + round(max(len(case) for case in figures.cases) * _LETTER)
    axis = _Axis(min(values), max(values), left, _WIDTH - _RIGHT)
    legend, top = _legend(names)
    bottom = top + _ROW * len(figures.cases)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="kp-plot" viewBox="0 0 {_WIDTH} {bottom + 52}" role="img" '
        f'aria-label="{escape(figures.title)}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="kp-back" width="{_WIDTH}" height="{bottom + 52}" rx="8"/>',
        _text(16, 26, figures.subject, "kp-name"),
        _text(16, 46, figures.machine, "kp-soft"),
    ]
    out += legend
    firsts = {next(iter(names[1:]), "") for names in map(list, figures.cases.values())}
    out.append(
        _text(_WIDTH - 12, 46, f"ratio to {firsts.pop()}" if len(firsts) == 1 else "ratio to the peer", "kp-soft", "end")
    )
    for value, label in axis.ticks():
        at = axis.place(value)
        out.append(f'<line class="kp-grid" x1="{at:.1f}" x2="{at:.1f}" y1="{top - 4}" y2="{bottom}"/>')
        out.append(_text(at, bottom + 18, label, "kp-soft", "middle"))
    better = "less is better" if figures.unit in LOWER_IS_BETTER else "more is better"
    scale = ", logarithmic" if axis.is_log else ""
    out.append(_text((left + _WIDTH - _RIGHT) / 2, bottom + 40, f"{figures.unit} ({better}{scale})", "kp-soft", "middle"))
    for number, (case, reached) in enumerate(figures.cases.items()):
        out += _case(case, reached, names, axis, top + _ROW * number + _ROW / 2, figures.unit)
    return "\n".join([*out, "</svg>"]) + "\n"


def _legend(names: Sequence[str]) -> tuple[list[str], float]:
    """Returns the marks with their names, in as many lines as they need, and where the cases begin."""
    out: list[str] = []
    x, y = 16.0, 64.0
    for number, name in enumerate(names):
        width = 42 + len(name) * _LETTER
        if x > 16 and x + width > _WIDTH:
            x, y = 16.0, y + _ROW
        out += [_mark(number, x + 6, y), _text(x + 18, y + 4, name)]
        x += width
    return out, y + 20


def _case(case: str, reached: Mapping[str, float], names: Sequence[str], axis: _Axis, y: float, unit: str) -> list[str]:
    places = {name: axis.place(value) for name, value in reached.items()}
    least, most = min(places.values()), max(places.values())
    out = [
        _text(axis.left - 12, y + 4, case, "", "end"),
        f'<line class="kp-span" x1="{least:.1f}" x2="{most:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>',
    ]
    for number, name in reversed([*enumerate(names)]):  # kernelpack's mark lies above the others
        if name in places:
            out.append(_mark(number, places[name], y, f"{case}: {name} {reached[name]:.4g} {unit}"))
    for name in list(reached)[1:2]:
        ratio = reached[name] / reached[OURS] if unit in LOWER_IS_BETTER else reached[OURS] / reached[name]
        out.append(_text(_WIDTH - 12, y + 4, f"{ratio:.2f}x", "", "end"))
    return out


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "") -> str:
    more = f' class="{kind}"' if kind else ""
    more += f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(text)}</text>'


def _mark(number: int, x: float, y: float, title: str = "") -> str:
    """Returns the mark of a contender: a filled circle for kernelpack, for others another shape and colour each."""
    inner = f"<title>{escape(title)}</title>" if title else ""
    if number == 0:
        return f'<circle class="kp-mark kp-0" cx="{x:.1f}" cy="{y:.1f}" r="5">{inner}</circle>'
    others = len(_SHAPES)
    shape = _SHAPES[(number - 1 + (number - 1) // others) % others]
    places = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in shape)
    return f'<polygon class="kp-mark kp-{(number - 1) % others + 1}" points="{places}">{inner}</polygon>'


class _Axis:
    """Places of values from 0, or of logarithms where values are far apart."""

    def __init__(self, least: float, most: float, left: float, right: float) -> None:
        self.left, self.right = left, right
        self.is_log = most / least > _LOG
        self._ticks = _powers(least, most) if self.is_log else _multiples(most)
        self.low = self._ticks[0]
        self.high = self._ticks[-1] if self.is_log else most * 1.02

    def place(self, value: float) -> float:
        """Returns the x of a value."""
        if self.is_log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = value / self.high
        return self.left + (self.right - self.left) * share

    def ticks(self) -> list[tuple[float, str]]:
        """Returns values that deserve a line, with their texts."""
        few = 1 + len(self._ticks) // 9 if self.is_log else 1
        return [(value, f"{value:g}") for value in self._ticks[::few]]


def _powers(least: float, most: float) -> list[float]:
    """Returns 1, 2 and 5 times powers of ten, from at most the least value to at least the most."""
    decades = range(math.floor(math.log10(least)) - 1, math.ceil(math.log10(most)) + 2)
    found = [factor * 10.0**power for power in decades for factor in (1, 2, 5)]
    first = max(number for number, value in enumerate(found) if value <= least)
    last = min(number for number, value in enumerate(found) if value >= most)
    return found[first : last + 1]


def _multiples(most: float) -> list[float]:
    """Returns the multiples of a round step from 0 to the most, four to nine of them."""
    step = 10.0 ** math.floor(math.log10(most / 4))
    step = max(step * factor for factor in (1, 2, 2.5, 5) if step * factor <= most / 4)
    return [number * step for number in range(math.floor(most * 1.02 / step) + 1)]
