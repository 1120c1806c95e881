"""What is planned of an op: the kernels to compile, and for each launch a table of those that serve a call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelpack.errors import SourceLocation
from kernelpack.facts import Fact
from kernelpack.kernel.jit import JITFunction
from kernelpack.opgen.host.ir import Expr, HostFunction, Launch, Parts
from kernelpack.opgen.stated.config import Fastest
from kernelpack.opgen.stated.space import Space
from kernelpack.opgen.variants.decisions import Decision
from kernelpack.opgen.variants.read_only import ReadOnly
from kernelpack.options import Options
from kernelpack.target import Target


@dataclass(frozen=True)
class KernelVariant:
    """A kernel to compile. `signature` holds the run-time parameters in order, `constexprs` the rest (None: absent tensor).

    `facts` are those that the backend may use, `constants` those that made a parameter a constant, which the backend never
    sees. `plain` is the entry of the variant that assumes nothing; None: this is it. `ops` are the names of the ops that launch it;
    `read_only` are the parameters that get arguments which these ops must not change; `parts` says which
    parameters are parts of tuples. `apart` are the targets for which configs bind the same point otherwise: it never has their code.
    """

    name: str
    ops: tuple[str, ...]
    kernel: JITFunction
    target: Target
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    options: Options
    facts: tuple[Fact, ...]
    constants: tuple[Fact, ...]
    entry: str = ""
    plain: str | None = None
    read_only: tuple[ReadOnly, ...] = ()
    parts: Mapping[str, Parts] = field(default_factory=dict)
    apart: tuple[Target, ...] = ()

    @property
    def assumed(self) -> tuple[Fact, ...]:
        """Everything that must hold for a call."""
        return tuple(sorted({*self.facts, *self.constants}))


@dataclass(frozen=True)
class LaunchArgument:
    """A run-time parameter of a launch: the union over its variants. `kind` is `pointer` or a number type (`i32`, `fp32`)."""

    parameter: str
    kind: str
    value: Expr


@dataclass(frozen=True)
class Axis:
    """An axis of a launch's dispatch table: the dtypes of a tensor argument, or the values of a constexpr."""

    name: str
    size: int
    values: tuple[int | bool, ...] = ()
    value: Expr | None = None


@dataclass(frozen=True)
class Row:
    """A variant in a dispatch table. `meta` are the constexprs that the grid asks for."""

    variant: KernelVariant
    meta: tuple[int, ...]


@dataclass
class LaunchPlan:
    """A launch with its table: `points[target][p]` are the rows of point p, in the order of the axes, last axis fastest.

    Where sizes choose among configs, `key` names these sizes. Each point then takes `config_count` consecutive entries: one for each
    config of its decision (`decisions[target][p]`), filled up with the first where it has fewer. `left_out` says that the configs leave
    some combinations out for all targets. `read_only` are the parameters that get arguments which the op must not change.
    """

    launch: Launch
    axes: tuple[Axis, ...]
    slots: tuple[LaunchArgument, ...]
    read_only: tuple[ReadOnly, ...] = ()
    points: dict[Target, list[list[Row]]] = field(default_factory=dict)
    left_out: bool = False
    config_count: int = 1
    key: tuple[str, ...] | None = None
    decisions: dict[Target, dict[int, Decision]] = field(default_factory=dict)

    def rows(self) -> Iterator[Row]:
        """Returns every variant of every target, once for each point that it serves."""
        return (row for points in self.points.values() for point in points for row in point)


def point_of(axes: Sequence[Axis], places: Sequence[int]) -> int:
    """Returns the number of the point that has these entries of the axes."""
    point = 0
    for axis, place in zip(axes, places, strict=True):
        point = point * axis.size + place
    return point


@dataclass(frozen=True)
class Contest:
    """A point of a launch that several configs compete for: `rows` are those of each config, the one that assumes nothing first.
    `passed` are the constexprs and axes that its calls pass."""

    op: str
    target: Target
    name: str
    passed: Mapping[str, Any]
    fastest: Fastest
    rows: tuple[tuple[Row, ...], ...]


@dataclass(frozen=True)
class OpPlan:
    """An op ready to be compiled and printed."""

    host: HostFunction
    space: Space
    location: SourceLocation
    launches: tuple[LaunchPlan, ...]
