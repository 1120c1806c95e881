"""Plans the variants of an op: every point of its space, for every target, becomes kernels to compile and a dispatch table."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernelpack.backends.base import Backend, Fact, Options
from kernelpack.errors import HostFunctionError, SourceLocation
from kernelpack.frontend.jit import JITFunction
from kernelpack.opgen.assumptions import Provenance, assumptions
from kernelpack.opgen.config import (
    Config,
    ConfigLike,
    Fastest,
    SameAs,
    Space,
    Specialization,
    VariantPoint,
    config_for,
    options_of,
)
from kernelpack.opgen.dtypes import DType
from kernelpack.opgen.host_ir import BOOL, FLOAT, INT, NONE, Expr, HostFunction, Launch
from kernelpack.opgen.host_static import UNKNOWN, ReachedLaunch, TensorFact, is_tensor_like, reached_launches
from kernelpack.opgen.kernels import kernel_parameters, number_type
from kernelpack.opgen.tuning import Choices, Decision
from kernelpack.target import Target


@dataclass(frozen=True)
class KernelVariant:
    """A kernel to compile. `signature` holds the run-time parameters in order, `constexprs` the rest (None: absent tensor).

    `facts` are those that the backend may use, `constants` those that made a parameter a constant, which the backend never
    sees. `plain` is the entry of the variant that assumes nothing; None: this is it.
    """

    name: str
    op: str
    kernel: JITFunction
    target: Target
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    options: Options
    facts: tuple[Fact, ...]
    constants: tuple[Fact, ...]
    entry: str
    plain: str | None = None

    @property
    def assumed(self) -> tuple[Fact, ...]:
        """Everything that must hold for a call."""
        return tuple(sorted({*self.facts, *self.constants}))


@dataclass(frozen=True)
class Slot:
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

    Where sizes choose among configs, `key` names them, and each point is `config_count` entries behind each other, one for each
    config of its decision (`decisions[target][p]`), and its first again where it has fewer. `left_out` says that the configs build some
    combinations for none of the targets.
    """

    launch: Launch
    axes: tuple[Axis, ...]
    slots: tuple[Slot, ...]
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
    """A point of a launch that several configs compete for: `rows` are those of each config, the one that assumes nothing first."""

    op: str
    target: Target
    name: str
    fastest: Fastest
    rows: tuple[tuple[Row, ...], ...]


@dataclass(frozen=True)
class OpPlan:
    """An op ready to be compiled and printed."""

    host: HostFunction
    space: Space
    location: SourceLocation
    launches: tuple[LaunchPlan, ...]


class Planner:
    """Plans the ops of a library. Equal kernels of several launches are compiled once; names are unique in the library."""

    def __init__(self, namespace: str, targets: Sequence[tuple[Target, Backend]], choices: Choices | None = None) -> None:
        self.namespace = namespace
        self.targets = targets
        self.choices = choices or Choices()
        self.contests: list[Contest] = []
        self.variants: dict[tuple[Any, ...], KernelVariant] = {}
        self.names: set[tuple[str, Target]] = set()

    def plan(
        self,
        host: HostFunction,
        space: Space,
        configs: Mapping[str, ConfigLike],
        specialize: Sequence[Specialization],
        location: SourceLocation,
    ) -> OpPlan:
        """Plans one op. Raises HostFunctionError for constexprs that nothing binds."""
        _check_names(host, space, configs, specialize, location)
        plans = tuple(LaunchPlan(launch, _axes(host, launch, space), _slots(launch)) for launch in host.launches)
        provenance = Provenance(host)
        filled: list[dict[Target, dict[int, list[list[Row]]]]] = [{target: {} for target, _ in self.targets} for _ in plans]
        for combination, dtypes, listed in _combinations(space):
            for reached in reached_launches(host, dtypes):
                plan = plans[reached.launch.index]
                for target, backend in self.targets:
                    found = self._fill(
                        plan,
                        reached,
                        combination,
                        listed,
                        target,
                        backend,
                        configs,
                        specialize,
                        provenance,
                        host.name,
                        location,
                    )
                    filled[reached.launch.index][target] |= found
        for plan, by_target in zip(plans, filled, strict=True):
            plan.config_count = max((len(rows) for points in by_target.values() for rows in points.values()), default=1)
            for target, points in by_target.items():
                count = _product(axis.size for axis in plan.axes)
                entries = (points.get(point, [[]]) for point in range(count))
                plan.points[target] = [
                    rows for entry in entries for rows in (*entry, *[entry[0]] * (plan.config_count - len(entry)))
                ]
            # a launch that configs leave out for all of these targets is for others: under x.is_cuda, in a library for CPUs
            if not plan.left_out and not any(rows for points in plan.points.values() for rows in points):
                raise HostFunctionError(
                    f"no combination of variants reaches this launch of {plan.launch.kernel_name}",
                    location=plan.launch.location,
                )
        return OpPlan(host, space, location, plans)

    def _fill(
        self,
        plan: LaunchPlan,
        reached: ReachedLaunch,
        combination: tuple[int, ...],
        listed: Mapping[str, Any],
        target: Target,
        backend: Backend,
        configs: Mapping[str, ConfigLike],
        specialize: Sequence[Specialization],
        provenance: Provenance,
        op: str,
        location: SourceLocation,
    ) -> dict[int, list[list[Row]]]:
        """Returns, by point, the rows of each config that calls of these dtypes may get."""
        value_axes = [axis for axis in plan.axes if axis.value is not None]
        filled: dict[int, list[list[Row]]] = {}
        for choice in itertools.product(*(range(axis.size) for axis in value_axes)):
            chosen = {axis.name: axis.values[i] for axis, i in zip(value_axes, choice, strict=True)}
            if any(
                reached.arguments[name] is not UNKNOWN and reached.arguments[name] != value for name, value in chosen.items()
            ):
                continue  # the host function decides this constexpr for these dtypes
            point = VariantPoint({**listed, **chosen}, target, plan.launch.kernel_name)

            def bind(number: int, point: VariantPoint = point, chosen: Mapping[str, Any] = chosen) -> list[Bound | None]:
                """Returns what config `number` gives the variant that assumes nothing, and the others."""
                plain = _bind(plan.launch, reached, chosen, configs, point, number)
                if plain is None or not plain.specialize:
                    return [plain]
                special = _bind(plan.launch, reached, chosen, configs, replace(point, specialized=True), number)
                return [plain, *(special for _ in specialize)]

            bounds = bind(0)
            if bounds[0] is None:
                plan.left_out = True
                continue
            index = point_of(plan.axes, (*combination, *choice))
            label = "-".join([*_labels(listed, plan.axes), *(f"{name}{int(value)}" for name, value in chosen.items())])
            name = f"{plan.launch.kernel_name}{'-' if label else ''}{label}"
            fastest = next(
                (bound.fastest for bound in reversed(bounds) if bound is not None and bound.fastest is not None), None
            )
            if fastest is None:
                filled[index] = [self._rows(plan, name, op, target, backend, specialize, provenance, bounds)]
                continue
            _note_key(plan, fastest, location)
            decision = self.choices.decide(op, location.file, target, name, fastest)
            plan.decisions.setdefault(target, {})[index] = decision
            filled[index] = [
                self._rows(plan, f"{name}-c{number}", op, target, backend, specialize, provenance, bind(number))
                for number in decision.configs
            ]
            self.contests.append(Contest(op, target, name, fastest, tuple(map(tuple, filled[index]))))
        return filled

    def _rows(
        self,
        plan: LaunchPlan,
        name: str,
        op: str,
        target: Target,
        backend: Backend,
        specialize: Sequence[Specialization],
        provenance: Provenance,
        bounds: Sequence[Bound | None],
    ) -> list[Row]:
        """Returns the variants of a point with one config: the one that assumes nothing, and the specialised ones."""
        rows: list[Row] = []
        for number, (bound, specialization) in enumerate(zip(bounds, [None, *specialize], strict=False)):
            if bound is None:
                continue
            facts: tuple[Fact, ...] = ()
            constants: tuple[Fact, ...] = ()
            if specialization is not None:
                parameters = kernel_parameters(plan.launch.kernel)
                facts, constants = assumptions(
                    plan.launch, bound.signature, specialization, provenance, backend.properties(), parameters
                )
                if not facts and not constants:
                    continue
            suffix = "any" if number == 0 else "aligned" if number == 1 else f"aligned{number}"
            values = {fact.parameter: fact.value for fact in constants}
            variant = self._variant(
                f"{name}.{suffix}",
                op,
                plan.launch.kernel,
                target,
                {name: kind for name, kind in bound.signature.items() if name not in values},
                bound.constexprs | values,
                bound.options,
                facts,
                constants,
                rows[0].variant.entry if rows else None,
            )
            meta = tuple(int(bound.constexprs[name]) for name in plan.launch.meta_names)
            if not any(row.variant is variant for row in rows):
                rows.append(Row(variant, meta))
        return rows

    def _variant(
        self,
        name: str,
        op: str,
        kernel: JITFunction,
        target: Target,
        signature: dict[str, str],
        constexprs: dict[str, Any],
        options: Options,
        facts: tuple[Fact, ...],
        constants: tuple[Fact, ...],
        plain: str | None,
    ) -> KernelVariant:
        values = tuple((key, repr(value)) for key, value in sorted(constexprs.items()))
        key = (id(kernel), target, tuple(signature.items()), values, options, facts, constants)
        found = self.variants.get(key)
        if found is None:
            unique, count = name, 1
            while (unique, target) in self.names:
                count += 1
                stem, _, suffix = name.rpartition(".")
                unique = f"{stem}-{count}.{suffix}"
            self.names.add((unique, target))
            entry = re.sub(r"\W", "_", f"{self.namespace}_{unique}_{target.slug}")
            found = KernelVariant(unique, op, kernel, target, signature, constexprs, options, facts, constants, entry, plain)
            self.variants[key] = found
        return found


def _product(sizes: Any) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


def _labels(listed: Mapping[str, Any], axes: Sequence[Axis]) -> list[str]:
    labels = []
    for axis in axes:
        if axis.value is None:
            dtype = listed[f"{axis.name}:dtype"]
            labels.append("none" if dtype is None else dtype.short)
    return labels


def _combinations(space: Space) -> Iterator[tuple[tuple[int, ...], dict[str, DType | None], dict[str, Any]]]:
    """Returns every choice of entries of the dtype axes, with what _resolve makes of it."""
    names = [name for name, entries in space.dtypes.items() if len(entries) > 1]
    for combination in itertools.product(*(range(len(space.dtypes[name])) for name in names)):
        yield combination, *_resolve(space, dict(zip(names, combination, strict=True)))


def dtypes_of(space: Space) -> Iterator[tuple[tuple[int, ...], dict[str, DType | None]]]:
    """Returns every choice of entries of the dtype axes, with the dtypes that the tensor arguments then have."""
    return ((combination, dtypes) for combination, dtypes, _ in _combinations(space))


def _resolve(space: Space, chosen: Mapping[str, int]) -> tuple[dict[str, DType | None], dict[str, Any]]:
    """Returns the dtypes for a choice of entries, and what the author listed for each (`name:dtype` has our row)."""
    dtypes: dict[str, DType | None] = {}
    listed: dict[str, Any] = {}
    entries = {name: entries[chosen.get(name, 0)] for name, entries in space.dtypes.items()}
    for name in sorted(entries, key=lambda name: isinstance(entries[name], SameAs)):
        entry = entries[name]
        source = name
        hops = 0
        while isinstance(entry, SameAs):
            source = entry.argument
            entry = entries[source]
            hops += 1
            if hops > len(entries):
                raise HostFunctionError(f"variants: the dtype of {name!r} is that of {source!r}, and so on in a circle")
        dtypes[name] = entry
        listed[name] = space.listed.get((source, entry))
        listed[f"{name}:dtype"] = entry
    return dtypes, listed


def _axes(host: HostFunction, launch: Launch, space: Space) -> tuple[Axis, ...]:
    axes = [Axis(name, len(entries)) for name, entries in space.dtypes.items() if len(entries) > 1]
    for parameter in kernel_parameters(launch.kernel):
        if parameter.name in space.constexprs and parameter.name in launch.arguments:
            values = space.constexprs[parameter.name]
            axes.append(Axis(parameter.name, len(values), values, launch.arguments[parameter.name]))
    return tuple(axes)


def _slots(launch: Launch) -> tuple[Slot, ...]:
    slots: list[Slot] = []
    for parameter in kernel_parameters(launch.kernel):
        if parameter.is_constexpr:
            continue
        value = launch.arguments[parameter.name]
        if value.type == NONE:
            continue
        if is_tensor_like(value):
            slots.append(Slot(parameter.name, "pointer", value))
        else:
            default = {INT: "i32", FLOAT: "fp32", BOOL: "i1"}[value.type]
            slots.append(Slot(parameter.name, number_type(parameter, default), value))
    return tuple(slots)


@dataclass(frozen=True)
class Bound:
    """A point with a config: what its kernel is compiled with, whether it gets specialised variants, and the configs among which
    its own is one, if there are several."""

    signature: dict[str, str]
    constexprs: dict[str, Any]
    options: Options
    specialize: bool
    fastest: Fastest | None


def _bind(
    launch: Launch,
    reached: ReachedLaunch,
    chosen: Mapping[str, Any],
    configs: Mapping[str, ConfigLike],
    point: VariantPoint,
    number: int,
) -> Bound | None:
    """Returns a point bound to its config, or to config `number` of several; None where the author's function declines it."""
    signature: dict[str, str] = {}
    constexprs: dict[str, Any] = {}
    open_names: list[str] = []
    for parameter in kernel_parameters(launch.kernel):
        name = parameter.name
        if not parameter.is_constexpr:
            known = reached.arguments[name]
            value = launch.arguments[name]
            if isinstance(known, TensorFact):
                if known.dtype is None:
                    constexprs[name] = None
                else:
                    signature[name] = f"*{known.dtype.language}"
            elif is_tensor_like(value):
                raise HostFunctionError(
                    f"the dtype of {name!r} is not known when building: it depends on a branch that only the call decides",
                    location=launch.location,
                    cure="launch inside the branches",
                )
            else:
                default = {INT: "i32", FLOAT: "fp32", BOOL: "i1"}[value.type]
                signature[name] = number_type(parameter, default)
        elif name in chosen:
            constexprs[name] = chosen[name]
        elif name in launch.arguments:
            known = reached.arguments[name]
            if known is UNKNOWN:
                values = "[False, True]" if launch.arguments[name].type == BOOL else "[...]"
                raise HostFunctionError(
                    f"constexpr {name!r} of {launch.kernel_name} is known only when the op is called",
                    location=launch.location,
                    cure=f'list the values to build: variants={{..., "{name}": {values}}}',
                )
            constexprs[name] = None if isinstance(known, TensorFact) else known
        else:
            open_names.append(name)
    full = replace(point, known={**point.known, **{k: v for k, v in constexprs.items() if k not in signature}})
    found = launch.fastest or config_for(configs, full)
    if found is None:
        return None
    fastest = found if isinstance(found, Fastest) else None
    config = found.configs[number] if isinstance(found, Fastest) else found
    for parameter in kernel_parameters(launch.kernel):
        if parameter.name in open_names:
            if parameter.name in config.kwargs:
                constexprs[parameter.name] = config.kwargs[parameter.name]
            elif parameter.has_default:
                constexprs[parameter.name] = parameter.default
            else:
                given = ", ".join(configs) or "none"
                raise HostFunctionError(
                    f"nothing binds constexpr {parameter.name!r} of {launch.kernel_name} for {point.target} (configs: {given})",
                    location=launch.location,
                    cure=f'pass it in the launch, or write configs={{"{point.target.backend}": '
                    f'kp.Config({{"{parameter.name}": ...}})}}',
                )
    for name in launch.meta_names:
        if not isinstance(constexprs.get(name), int):
            raise HostFunctionError(
                f'the grid asks for meta["{name}"], which is no integer constexpr of {launch.kernel_name}',
                location=launch.location,
            )
    order = {parameter.name: i for i, parameter in enumerate(kernel_parameters(launch.kernel))}
    constexprs = dict(sorted(constexprs.items(), key=lambda item: order[item[0]]))
    return Bound(signature, constexprs, options_of(config, launch.options), config.specialize, fastest)


def _note_key(plan: LaunchPlan, fastest: Fastest, location: SourceLocation) -> None:
    """Notes by what a launch's configs are chosen. Raises HostFunctionError for a key that a call cannot choose by."""
    if plan.key not in (None, fastest.key):
        keys = ", and by ".join(", ".join(key) or "nothing" for key in sorted({plan.key or (), fastest.key}))
        raise HostFunctionError(
            f"the configs of {plan.launch.kernel_name} are chosen by {keys}",
            location=location,
            cure="give all kp.fastest of a launch one key",
        )
    plan.key = fastest.key
    numbers = [slot.parameter for slot in plan.slots if slot.value.type == INT]
    for name in fastest.key:
        if name not in numbers:
            raise HostFunctionError(
                f"kp.fastest: key names {name!r}, which is no run-time integer of {plan.launch.kernel_name}",
                location=location,
                cure=f"its run-time integers are {', '.join(numbers) or 'none'}",
            )


def _check_names(
    host: HostFunction,
    space: Space,
    configs: Mapping[str, ConfigLike],
    specialize: Sequence[Specialization],
    location: SourceLocation,
) -> None:
    """Raises HostFunctionError for names in variants, configs and specialize that no kernel or argument has."""
    parameters = {p.name: p.is_constexpr for launch in host.launches for p in kernel_parameters(launch.kernel)}
    passed = {name for launch in host.launches for name in launch.arguments}
    constexprs = sorted(name for name, is_constexpr in parameters.items() if is_constexpr)
    for name in space.constexprs:
        if not parameters.get(name, False):
            raise HostFunctionError(
                f"variants of {host.name}: {name!r} is neither a Tensor argument nor a constexpr parameter of a kernel",
                location=location,
                cure=f"constexpr parameters are {', '.join(constexprs) or 'none'}",
            )
        if name not in passed:
            raise HostFunctionError(
                f"variants of {host.name}: no launch passes {name!r}, so a call could not choose its value",
                location=location,
                cure=f"pass {name}=... in the launch, or bind it in configs",
            )
    for key, config in configs.items():
        several = config.configs if isinstance(config, Fastest) else (config,)
        for name in dict.fromkeys(name for one in several if isinstance(one, Config) for name in one.kwargs):
            if not parameters.get(name, False):
                raise HostFunctionError(
                    f"configs[{key!r}] of {host.name}: no kernel has a constexpr {name!r}",
                    location=location,
                    cure=f"constexpr parameters are {', '.join(constexprs) or 'none'}",
                )
    tensors = {argument.name for argument in host.schema.tensors}
    for specialization in specialize:
        for name in specialization.tensors or ():
            if name not in tensors:
                raise HostFunctionError(f"specialize of {host.name}: {name!r} is no Tensor argument", location=location)
        for name in (*specialization.ones, *specialization.divisible):
            if parameters.get(name, True):
                raise HostFunctionError(
                    f"specialize of {host.name}: {name!r} is no run-time parameter of a kernel", location=location
                )
