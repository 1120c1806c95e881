"""What `kernelpack tune` measured, as files next to the ops, and the decision tables that builds make of it."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelpack.config import Config
from kernelpack.errors import BuildError, TargetError
from kernelpack.files import generated
from kernelpack.files.document import Shape, read_document
from kernelpack.opgen.stated.config import Fastest
from kernelpack.options import Options
from kernelpack.target import Target

_TOLERANCE = 1.05
"""A config that loses no more than this to the fastest is as good: each further config is one more kernel in the library."""

Sizes = tuple[int, ...]
"""The values of a launch's `key`, in its order."""


@dataclass(frozen=True)
class Decision:
    """Which config of a `Fastest` a call gets.

    `configs` are the numbers of those that win somewhere. Each key's sizes fall into bins: `bounds[i]` are the upper bounds of
    key i's bins, ascending; what is larger than the last falls into one more. `choices` has the position in `configs` for
    each combination of bins, the last key's fastest.
    """

    key: tuple[str, ...]
    configs: tuple[int, ...]
    bounds: tuple[Sizes, ...]
    choices: tuple[int, ...]

    def choose(self, sizes: Sizes) -> int:
        """Returns the number of the config for a call, as the built op does."""
        place = 0
        for value, bounds in zip(sizes, self.bounds, strict=True):
            place = place * (len(bounds) + 1) + sum(value > bound for bound in bounds)
        return self.configs[self.choices[place]]

    def rows(self) -> Iterator[tuple[tuple[str, ...], int]]:
        """Yields combinations of bins, as text, with the number of their config; neighbours that decide alike are one."""
        *outer, inner = [list(range(len(bounds) + 1)) for bounds in self.bounds] or [[0]]
        choices = iter(self.choices)
        for bins in itertools.product(*outer):
            for choice, run in itertools.groupby(zip(inner, choices, strict=False), key=lambda pair: pair[1]):
                places = [place for place, _ in run]
                texts = [self._text(axis, place, place) for axis, place in enumerate(bins)]
                texts += [self._text(len(outer), places[0], places[-1])] if self.bounds else []
                yield tuple(texts), self.configs[choice]

    def _text(self, axis: int, first: int, last: int) -> str:
        bounds = self.bounds[axis]
        if last == len(bounds):
            return f"> {bounds[first - 1]}" if first else "any"
        return f"<= {bounds[last]}"


def first_config(fastest: Fastest) -> Decision:
    """Returns the decision where nothing was measured: the first config, for all sizes."""
    return Decision(fastest.key, (0,), ((),) * len(fastest.key), (0,))


def decide(key: Sequence[str], times: Mapping[Sizes, Mapping[int, float]]) -> Decision:
    """Returns the decision that measured times lead to: by call's sizes, then the number of the config; in any unit.

    As few configs are kept as cover every call within 5 % of its fastest. The sizes measured are the upper bounds of bins;
    combinations of bins that were not measured take the nearest that was, in powers of two.
    """
    kept = _cover(times)
    winners = {sizes: min((config for config in kept if config in row), key=row.__getitem__) for sizes, row in times.items()}
    bounds = [sorted({sizes[i] for sizes in times}) for i in range(len(key))]
    table = {
        bins: winners[min(winners, key=lambda sizes: (_distance(sizes, bins), sizes))] for bins in itertools.product(*bounds)
    }
    for axis in range(len(key)):
        _merge_bins(axis, bounds, table)
    order = tuple(dict.fromkeys(sorted(table.values())))
    choices = tuple(order.index(table[bins]) for bins in itertools.product(*bounds))
    return Decision(tuple(key), order, tuple(tuple(values[:-1]) for values in bounds), choices)


def _cover(times: Mapping[Sizes, Mapping[int, float]]) -> list[int]:
    """Returns few configs of which every call has one that is nearly its fastest; greedily, those of most calls first."""
    good = {sizes: {c for c, time in row.items() if time <= min(row.values()) * _TOLERANCE} for sizes, row in times.items()}
    kept: list[int] = []
    while open_sizes := [sizes for sizes in times if not good[sizes] & set(kept)]:
        candidates = sorted(set().union(*(good[sizes] for sizes in open_sizes)))
        kept.append(max(candidates, key=lambda config: sum(config in good[sizes] for sizes in open_sizes)))
    return kept


def _distance(sizes: Sizes, others: Sizes) -> float:
    return sum((math.log2(max(a, 1)) - math.log2(max(b, 1))) ** 2 for a, b in zip(sizes, others, strict=True))


def _merge_bins(axis: int, bounds: list[list[int]], table: dict[Sizes, int]) -> None:
    """Merges neighbouring bins of a key that decide alike."""
    for low, high in zip(bounds[axis][:-1], bounds[axis][1:], strict=True):
        others = [values if i != axis else [low] for i, values in enumerate(bounds)]
        pairs = [(bins, (*bins[:axis], high, *bins[axis + 1 :])) for bins in itertools.product(*others)]
        if all(table[a] == table[b] for a, b in pairs):
            bounds[axis].remove(low)
            for a, _ in pairs:
                del table[a]


# -- files -------------------------------------------------------------------------------------------------------------------


@dataclass
class Results:
    """What was measured of an op on one device, for one target: `kernels[point]` by the name of kernel and point, in a JSON file."""

    op: str
    device: str
    target: str
    kernels: dict[str, PointResults] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        device = re.sub(r"\W+", "-", self.device.lower()).strip("-")
        return f"{self.op}.{Target.parse(self.target).slug}.{device}.json"

    def save(self, folder: Path) -> None:
        """Writes the file into a folder. Raises BuildError where kernelpack did not write the one that is there."""
        kernels = {
            point: {
                "key": list(found.key),
                "source": found.source,
                "microseconds": {
                    " ".join(map(str, sizes)): {
                        text: None if math.isinf(time) else round(time * 1e6, 2) for text, time in row.items()
                    }
                    for sizes, row in sorted(found.times.items())
                },
            }
            for point, found in sorted(self.kernels.items())
        }
        record = {"op": self.op, "device": self.device, "target": self.target, "kernels": kernels}
        generated.write(folder / self.file_name, json.dumps(record, indent=1) + "\n")


@dataclass
class PointResults:
    """Seconds of each config, by `config_text`, for each call's sizes; infinite for configs that do not run on the device."""

    key: tuple[str, ...]
    source: str
    times: dict[Sizes, dict[str, float]] = field(default_factory=dict)


def config_text(config: Config) -> str:
    """Returns a config as results name it: constexprs, and the options that are not the defaults."""
    options = {name: value for name, value in config.options().items() if value != getattr(Options, name)}
    return ", ".join(f"{name}: {value}" for name, value in {**config.kwargs, **options}.items()) or "defaults"


def tuned_folder(op_file: str) -> Path:
    """Returns where the results of an op file's ops are kept: `tuned`, beside it."""
    return Path(op_file).parent / "tuned"


def read_results(folder: Path, op: str) -> list[Results]:
    """Returns all results of an op, in order of their files. Raises BuildError for a file that tune did not write."""
    return [_read(path) for path in sorted(folder.glob(f"{op}.*.json"))]


def _read(path: Path) -> Results:
    try:
        record = read_document(path.read_bytes(), _FILE)
        kernels = {
            point: PointResults(
                tuple(found["key"]),
                found["source"],
                {
                    _sizes(text, len(found["key"])): {config: _seconds(time) for config, time in row.items()}
                    for text, row in found["microseconds"].items()
                },
            )
            for point, found in record["kernels"].items()
        }
        return Results(record["op"], record["device"], str(Target.parse(record["target"])), kernels)
    except (ValueError, TargetError) as problem:
        raise BuildError(
            f"{path} is not a file that kernelpack tune wrote: {problem}", cure="remove it, and run kernelpack tune again"
        ) from None


_FILE: Shape = {
    "op": str,
    "device": str,
    "target": str,
    "kernels": {...: {"key": [str], "source": str, "microseconds": {...: {...: float | None}}}},
}


def _sizes(text: str, count: int) -> Sizes:
    """Returns the sizes of a call. Raises ValueError for what `save` does not write."""
    if re.fullmatch(r"(-?[0-9]{1,19}( -?[0-9]{1,19})*)?", text) is None or len(text.split()) != count:
        raise ValueError(f"expected {count} sizes, found {text[:60]!r}")
    return tuple(map(int, text.split()))


def _seconds(microseconds: float | None) -> float:
    """Returns a time, infinite where there is none, and half of the last digit that `save` writes for 0, as times are divided. Raises
    ValueError for one that nothing takes."""
    if microseconds is None:
        return math.inf
    if not 0 <= microseconds < math.inf:
        raise ValueError(f"expected a time in microseconds, found {microseconds}")
    return max(microseconds, 0.005) * 1e-6


def measured_times(results: Iterable[Results], target: Target, point: str, fastest: Fastest) -> dict[Sizes, dict[int, float]]:
    """Returns what is known of a point: by call's sizes and config number, the time as a multiple of the fastest.

    What several devices of one target measured counts alike: it is the mean of theirs.
    """
    numbers = {config_text(config): number for number, config in enumerate(fastest.configs)}
    ratios: dict[Sizes, dict[int, list[float]]] = {}
    for found in results:
        known = found.kernels.get(point)
        if found.target != str(target) or known is None or known.key != fastest.key:
            continue
        for sizes, row in known.times.items():
            times = {numbers[text]: time for text, time in row.items() if text in numbers and not math.isinf(time)}
            for number, time in times.items():
                ratios.setdefault(sizes, {}).setdefault(number, []).append(time / min(times.values()))
    return {sizes: {number: sum(values) / len(values) for number, values in row.items()} for sizes, row in ratios.items()}


@dataclass(frozen=True)
class PointDecision:
    """A decision, with what it comes from: `times` as `measured_times` returns them, and the devices that measured."""

    name: str
    target: Target
    fastest: Fastest
    decision: Decision
    times: Mapping[Sizes, Mapping[int, float]]
    devices: tuple[str, ...]

    def gains(self) -> list[float]:
        """Returns for each call measured how many times faster its config is than the first, where the first runs."""
        return [row[0] / row[self.decision.choose(sizes)] for sizes, row in self.times.items() if 0 in row]

    def gain_text(self) -> str:
        """Returns what choosing gains, in words."""
        gains = self.gains()
        if not gains:
            return f"{len(self.times)} sizes; config #0 does not run"
        mean = math.exp(sum(map(math.log, gains)) / len(gains))
        return f"{len(self.times)} sizes; {mean:.2f}x of config #0 on average, {min(gains):.2f}x to {max(gains):.2f}x"

    def record(self) -> dict[str, Any]:
        """Returns the decision as JSON."""
        return {
            "point": self.name,
            "target": str(self.target),
            "devices": list(self.devices),
            "key": list(self.decision.key),
            "configs": {number: config_text(self.fastest.configs[number]) for number in self.decision.configs},
            "bins": [
                {"sizes": dict(zip(self.decision.key, texts, strict=True)), "config": number}
                for texts, number in self.decision.rows()
            ],
            "gains": [round(gain, 3) for gain in self.gains()],
        }


class Choices:
    """The decisions of a build, from the results beside the op files."""

    def __init__(self) -> None:
        self._results: dict[tuple[Path, str], list[Results]] = {}

    def decide(self, op: str, op_file: str, target: Target, point: str, fastest: Fastest) -> Decision:
        """Returns which configs a point is built with, and which call gets which."""
        return self.explain(op, op_file, target, point, fastest).decision

    def explain(self, op: str, op_file: str, target: Target, point: str, fastest: Fastest) -> PointDecision:
        """Returns the decision with its reasons."""
        place = (tuned_folder(op_file), op)
        if place not in self._results:
            self._results[place] = read_results(*place)
        found = self._results[place]
        times = measured_times(found, target, point, fastest)
        devices = tuple(results.device for results in found if results.target == str(target) and point in results.kernels)
        decision = decide(fastest.key, times) if times else first_config(fastest)
        return PointDecision(point, target, fastest, decision, times, devices if times else ())


class AllConfigs(Choices):
    """What tune plans with: every config of every point."""

    def decide(self, op: str, op_file: str, target: Target, point: str, fastest: Fastest) -> Decision:
        return Decision(fastest.key, tuple(range(len(fastest.configs))), ((),) * len(fastest.key), (0,))
