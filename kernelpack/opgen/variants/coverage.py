"""Which calls the variants of an op cover: regions without a variant, variants that no call reaches, and pairs that both fit a call."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelpack.backends.base import Backend
from kernelpack.opgen.host.follow import UNKNOWN, OneOf, reached_launches
from kernelpack.opgen.host.ir import Apply, Assign, Const, Declare, Expr, HostFunction, Let, Ref, Variable, walk_statements
from kernelpack.opgen.variants.dispatch import Assumption, Tests, implies, is_contradiction, ordered
from kernelpack.opgen.variants.plan import Axis, LaunchPlan, OpPlan, Row, point_of
from kernelpack.target import Target

Region = Mapping[str, tuple[str, ...]]
"""A part of a launch's space of calls: for each axis, the values that lie in it. An axis that is not named may have any value."""


@dataclass(frozen=True)
class Overlap:
    """Two variants of which neither assumes all that the other does: calls that fit both get the `first`."""

    first: str
    second: str


@dataclass(frozen=True)
class LaunchCoverage:
    """What the variants of a launch cover for a target.

    `points` counts the choices of dtypes and constexprs, `reached` those that some call has. `unreachable` says of each variant that no
    call gets why that is, `overlapping` are variants between which only their order decides, `uncovered` are calls without a variant.
    """

    op: str
    kernel: str
    line: int
    target: Target
    points: int
    reached: int
    variants: int
    unreachable: Mapping[str, str]
    overlapping: tuple[Overlap, ...]
    uncovered: tuple[Region, ...]


def coverage(plan: OpPlan, targets: Sequence[tuple[Target, Backend]]) -> list[LaunchCoverage]:
    """Returns what the variants of an op cover, for each launch and target. Nothing is compiled for it."""
    possible = _PossibleValues(plan.host)
    devices = {backend.device_type for _, backend in targets}
    found: list[LaunchCoverage] = []
    for launch in plan.launches:
        reached = {device: _reached(plan, launch, device, possible) for device in devices}  # whatever the device's targets
        found += [_launch_coverage(plan, launch, target, backend, reached[backend.device_type]) for target, backend in targets]
    return found


def warnings_of(found: Iterable[LaunchCoverage]) -> list[str]:
    """Returns a sentence for each region without a variant."""
    return [
        f"{one.op}: no variant of {one.kernel} (line {one.line}) covers {words(region)} on {one.target}"
        for one in found
        for region in one.uncovered
    ]


def words(region: Region) -> str:
    """Returns a region as a person reads it."""
    return "; ".join(f"{name} {' or '.join(values)}" for name, values in region.items()) or "any call"


def _launch_coverage(plan: OpPlan, launch: LaunchPlan, target: Target, backend: Backend, reached: set[int]) -> LaunchCoverage:
    tests = backend.tests()
    points = launch.points[target]
    named = [
        (f"dtype of {axis.name}", _dtype_names(plan, axis)) if axis.value is None else (axis.name, list(map(str, axis.values)))
        for axis in launch.axes
    ]
    reasons: dict[str, str | None] = {}
    overlaps: dict[Overlap, None] = {}
    holes: list[tuple[int, ...]] = []
    for number, place in enumerate(itertools.product(*(range(axis.size) for axis in launch.axes))):
        by_config = points[number * launch.config_count : (number + 1) * launch.config_count]
        for rows in by_config:
            for row, reason in _unreachable(rows, tests):
                name = row.variant.name
                unreached = None if number in reached else "no call has these dtypes and constexprs"
                reasons[name] = None if name in reasons and reasons[name] is None else reason or unreached
            overlaps |= dict.fromkeys(_overlaps(rows, tests))
        if number in reached and not all(any(row.variant.assumed == () for row in rows) for rows in by_config):
            holes.append(place)
    return LaunchCoverage(
        op=plan.host.name,
        kernel=launch.launch.kernel_name,
        line=launch.launch.location.line,
        target=target,
        points=math.prod(axis.size for axis in launch.axes),
        reached=len(reached),
        variants=len(reasons),
        unreachable={name: reason for name, reason in reasons.items() if reason is not None},
        overlapping=tuple(overlaps),
        uncovered=tuple(_regions(holes, named)),
    )


# -- what calls can have ----------------------------------------------------------------------------------------------------


def _reached(plan: OpPlan, launch: LaunchPlan, device: str, possible: _PossibleValues) -> set[int]:
    """Returns the points that a call with tensors of a device type can have."""
    found: set[int] = set()
    value_axes = [axis for axis in launch.axes if axis.value is not None]
    values = {axis.name: possible.of(axis.value) for axis in value_axes if axis.value is not None}
    passed_on = {axis.value.variable: axis.values for axis in value_axes if isinstance(axis.value, Ref)}
    passed_on = {variable: listed for variable, listed in passed_on.items() if possible.is_constant(variable)}
    for combination, given in itertools.product(plan.space.combinations(), itertools.product(*passed_on.values())):
        known_values = dict(zip(passed_on, given, strict=True))
        for reached in reached_launches(plan.host, combination.dtypes, device == "cuda", known_values):
            if reached.launch.index != launch.launch.index:
                continue
            known = {axis.name: reached.arguments[axis.name] for axis in value_axes}
            choices = [
                [
                    i
                    for i, value in enumerate(axis.values)
                    if _may_be(known[axis.name], value) and values[axis.name].holds(value)
                ]
                for axis in value_axes
            ]
            for choice in itertools.product(*choices):
                found.add(point_of(launch.axes, (*combination.places, *choice)))
    return found


def _may_be(known: Any, value: int) -> bool:
    return known is UNKNOWN or value in (known.values if isinstance(known, OneOf) else (known,))


@dataclass(frozen=True)
class _Values:
    """What an integer can be: one of a set, where that is known, between two bounds."""

    low: float = -math.inf
    high: float = math.inf
    listed: frozenset[int] | None = None

    def holds(self, value: int) -> bool:
        return self.low <= value <= self.high and (self.listed is None or value in self.listed)

    def __or__(self, other: _Values) -> _Values:
        listed = None if self.listed is None or other.listed is None else self.listed | other.listed
        return _Values(min(self.low, other.low), max(self.high, other.high), listed)


class _PossibleValues:
    """The values that expressions of a host function can have, whatever the call."""

    def __init__(self, host: HostFunction) -> None:
        self.assigned: dict[Variable, list[Expr]] = {}
        for statement in walk_statements(host.body):
            match statement:
                case Let(variable, value) | Assign(variable, value):
                    self.assigned.setdefault(variable, []).append(value)
                case Declare(variable, initial) if initial is not None:
                    self.assigned.setdefault(variable, []).append(initial)

    def is_constant(self, variable: Variable) -> bool:
        """Whether a variable has one value during a call: it is an argument, or assigned once."""
        return len(self.assigned.get(variable, ())) <= 1

    def of(self, expr: Expr, seen: frozenset[Variable] = frozenset()) -> _Values:
        match expr:
            case Const(int() as value):
                return _Values(value, value, frozenset((value,)))
            case Ref(variable) if variable in self.assigned and variable not in seen:
                return functools.reduce(
                    _Values.__or__, (self.of(value, seen | {variable}) for value in self.assigned[variable])
                )
            case Apply("select", (_, then, orelse)):
                return self.of(then, seen) | self.of(orelse, seen)
            case Apply("max" | "min" as name, operands):
                choose = max if name == "max" else min
                parts = [self.of(operand, seen) for operand in operands]
                return _Values(choose(part.low for part in parts), choose(part.high for part in parts))
        return _Values()


# -- variants of one point --------------------------------------------------------------------------------------------------


def _unreachable(rows: Sequence[Row], tests: Tests) -> Iterable[tuple[Row, str | None]]:
    """Returns each variant of a point with why no call gets it, or None."""
    order = ordered((row.variant.assumed for row in rows), tests)
    for row in rows:
        assumed = row.variant.assumed
        better = next((one for one in order[: order.index(assumed)] if implies(assumed, one, tests)), None)
        if is_contradiction(assumed, tests):
            yield row, f"it assumes what cannot hold together: {', '.join(map(str, assumed))}"
        elif better is not None:
            yield row, f"{next(other.variant.name for other in rows if other.variant.assumed == better)} fits all its calls"
        else:
            yield row, None


def _overlaps(rows: Sequence[Row], tests: Tests) -> Iterable[Overlap]:
    order = ordered((row.variant.assumed for row in rows), tests)
    names = {row.variant.assumed: row.variant.name for row in reversed(rows)}
    for first, second in itertools.combinations(order, 2):
        both: Assumption = tuple(dict.fromkeys((*first, *second)))
        if not implies(first, second, tests) and not implies(second, first, tests) and not is_contradiction(both, tests):
            yield Overlap(names[first], names[second])


# -- regions ----------------------------------------------------------------------------------------------------------------


def _dtype_names(plan: OpPlan, axis: Axis) -> list[str]:
    entries = plan.space.dtypes[axis.name]
    return [
        "None" if entry is None else getattr(entry, "name", f"that of {getattr(entry, 'argument', '')}") for entry in entries
    ]


def _regions(holes: Sequence[tuple[int, ...]], named: Sequence[tuple[str, list[str]]]) -> list[Region]:
    """Returns few regions that hold exactly these points: those that differ along one axis become one."""
    regions: list[tuple[frozenset[int], ...]] = [tuple(frozenset((i,)) for i in place) for place in holes]
    for axis in reversed(range(len(named))):
        merged: dict[tuple[frozenset[int], ...], frozenset[int]] = {}
        for region in regions:
            others = (*region[:axis], *region[axis + 1 :])
            merged[others] = merged.get(others, frozenset()) | region[axis]
        regions = [(*others[:axis], values, *others[axis:]) for others, values in merged.items()]
    return [
        {
            name: tuple(texts[i] for i in sorted(places))
            for (name, texts), places in zip(named, region, strict=True)
            if len(places) < len(texts)
        }
        for region in regions
    ]
