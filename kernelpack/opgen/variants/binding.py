"""Binds a kernel's parameters for one variant: types from dtypes and annotations, constexprs from host function and config."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kernelpack.backends.installed import backends
from kernelpack.config import Config
from kernelpack.errors import HostFunctionError
from kernelpack.kernel.jit import KernelParam
from kernelpack.nearest import did_you_mean
from kernelpack.opgen.host.follow import UNKNOWN, ReachedLaunch, TensorFact, is_tensor_like
from kernelpack.opgen.host.ir import BOOL, FLOAT, INT, Expr, Launch
from kernelpack.opgen.op import Op
from kernelpack.opgen.stated.config import ConfigLike, Fastest, VariantPoint, config_for, variant_options
from kernelpack.opgen.stated.space import Combination
from kernelpack.opgen.variants.plan import LaunchPlan, point_of
from kernelpack.options import Options
from kernelpack.target import Target


@dataclass(frozen=True)
class Point:
    """An entry of a launch's table (one choice of dtypes and constexprs) that some calls reach, and what is known of it when building.

    `signature` has the types of the kernel's run-time parameters, `passed` the constexprs that the axes or the host function decide,
    `listed` the values of the axes as the author wrote them.
    """

    number: int
    name: str
    launch: Launch
    signature: Mapping[str, str]
    passed: Mapping[str, Any]
    listed: Mapping[str, Any]


def points_of(plan: LaunchPlan, reached: ReachedLaunch, combination: Combination) -> Iterator[Point]:
    """Yields the points that calls with these dtypes can reach. Raises HostFunctionError for a constexpr whose value only the call knows."""
    launch = plan.launch
    signature = _signature(reached)
    value_axes = [axis for axis in plan.axes if axis.value is not None]
    dtypes = [combination.dtypes[axis.name] for axis in plan.axes if axis.value is None]
    labels = [launch.kernel_name, *("none" if dtype is None else dtype.short for dtype in dtypes)]
    for places in itertools.product(*(range(axis.size) for axis in value_axes)):
        chosen = {axis.name: axis.values[i] for axis, i in zip(value_axes, places, strict=True)}
        if any(reached.arguments[name] not in (UNKNOWN, value) for name, value in chosen.items()):
            continue  # the host function decides this constexpr for these dtypes
        name = "-".join([*labels, *(f"{name}{int(value)}" for name, value in chosen.items())])
        decided = {name: _constant(reached, name) for name in launch.arguments if name not in signature and name not in chosen}
        passed = {**decided, **chosen}
        number = point_of(plan.axes, (*combination.places, *places))
        yield Point(number, name, launch, signature, passed, {**combination.listed, **passed})


@dataclass(frozen=True)
class Bound:
    """What a variant's kernel is compiled with: types of run-time parameters, constexprs (both in the kernel's order), options."""

    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    options: Options


@dataclass(frozen=True)
class Binding:
    """What binds a kernel at a point: what the host function passes, and one config, or several to choose from."""

    point: Point
    target: Target
    configs: Mapping[str, ConfigLike]
    found: Config | Fastest
    specialized: bool

    @property
    def fastest(self) -> Fastest | None:
        return self.found if isinstance(self.found, Fastest) else None

    @property
    def count(self) -> int:
        """How many configs there are."""
        return len(self.found.configs) if isinstance(self.found, Fastest) else 1

    def config(self, number: int) -> Config:
        """Returns config `number` of several, or the only one."""
        return self.found.configs[number] if isinstance(self.found, Fastest) else self.found

    def bound(self, number: int) -> Bound:
        """Returns the point bound to a config. Raises HostFunctionError for a constexpr that nothing binds."""
        config, point, launch = self.config(number), self.point, self.point.launch
        constexprs: dict[str, Any] = {}
        for parameter in launch.parameters:
            name = parameter.name
            if name in point.signature:
                continue
            if name in point.passed:
                constexprs[name] = point.passed[name]
            elif name in config.kwargs:
                constexprs[name] = config.kwargs[name]
            elif parameter.has_default:
                constexprs[name] = parameter.default
            else:
                given = ", ".join(self.configs) or "none"
                raise HostFunctionError(
                    f"nothing binds constexpr {name!r} of {launch.kernel_name} for {self.target} (configs: {given})",
                    location=launch.location,
                    cure=f'pass it in the launch, or write configs={{"{self.target.backend}": kp.Config({{"{name}": ...}})}}',
                )
        for name in launch.meta_names:
            if not isinstance(constexprs.get(name), int):
                raise HostFunctionError(
                    f'the grid asks for meta["{name}"], which is no integer constexpr of {launch.kernel_name}',
                    location=launch.location,
                )
        return Bound(point.signature, constexprs, variant_options(config, launch.options, launch.kernel))


def bind(op: Op, point: Point, target: Target, *, specialized: bool) -> Binding | None:
    """Returns what binds the kernel at a point for a target; None where the author's function declines to build it."""
    asked = VariantPoint(point.listed, target, point.launch.kernel_name, specialized)
    found = point.launch.fastest or config_for(op.configs, asked)
    return None if found is None else Binding(point, target, op.configs, found, specialized)


_NUMBERS = {INT: "i32", FLOAT: "fp32", BOOL: "i1"}


def number_kind(parameter: KernelParam, value: Expr, launch: Launch) -> str:
    """Returns the type in a signature of a parameter that a host function passes a number."""
    kind = parameter.number_type or _NUMBERS[value.type]
    if kind in ("fp16", "bf16"):
        raise HostFunctionError(
            f"{parameter.name!r} of {launch.kernel_name} is {kind}: host functions pass numbers of 32 and 64 bits",
            location=launch.location,
            cure="annotate it tl.float32 and convert it in the kernel",
        )
    return kind


def _signature(reached: ReachedLaunch) -> dict[str, str]:
    """Returns the types of the run-time parameters; tensors that are absent have none."""
    signature: dict[str, str] = {}
    for parameter in reached.launch.parameters:
        if parameter.is_constexpr:
            continue
        known, value = reached.arguments[parameter.name], reached.launch.arguments[parameter.name]
        if isinstance(known, TensorFact):
            if known.dtype is not None:
                signature[parameter.name] = f"*{known.dtype.language}"
        elif is_tensor_like(value):
            raise HostFunctionError(
                f"the dtype of {parameter.name!r} is not known when building: it depends on a branch that only the call decides",
                location=reached.launch.location,
                cure="launch inside the branches",
            )
        else:
            signature[parameter.name] = number_kind(parameter, value, reached.launch)
    return signature


def _constant(reached: ReachedLaunch, name: str) -> Any:
    """Returns what the host function passes for a constexpr, or for a tensor that is absent: None."""
    known, launch = reached.arguments[name], reached.launch
    if known is UNKNOWN:
        values = "[False, True]" if launch.arguments[name].type == BOOL else "[...]"
        raise HostFunctionError(
            f"constexpr {name!r} of {launch.kernel_name} is known only when the op is called",
            location=launch.location,
            cure=f'list the values to build: variants={{..., "{name}": {values}}}',
        )
    return None if isinstance(known, TensorFact) else known


def check_names(op: Op) -> None:
    """Raises HostFunctionError for names in variants, configs and specialize that no kernel or argument has."""
    parameters = {p.name: p.is_constexpr for launch in op.host.launches for p in launch.parameters}
    _check_axes(op, parameters)
    for key, config in op.configs.items():
        _check_config(op, parameters, key, config)
    _check_specializations(op, parameters)


def _constexprs_are(parameters: Mapping[str, bool]) -> str:
    constexprs = sorted(name for name, is_constexpr in parameters.items() if is_constexpr)
    return f"constexpr parameters are {', '.join(constexprs) or 'none'}"


def _check_axes(op: Op, parameters: Mapping[str, bool]) -> None:
    passed = {name for launch in op.host.launches for name in launch.arguments}
    for name in op.space.constexprs:
        if parameters.get(name) is False:
            raise HostFunctionError(
                f"variants of {op.name}: {name!r} is a run-time parameter of a kernel",
                location=op.location,
                cure=_constexprs_are(parameters),
            )
        if name not in passed:
            raise HostFunctionError(
                f"variants of {op.name}: no launch passes {name!r}, so a call could not choose its value",
                location=op.location,
                cure=f"pass {name}=... in the launch, or bind it in configs",
            )


def _check_config(op: Op, parameters: Mapping[str, bool], key: str, config: ConfigLike) -> None:
    backend = backends().get(key.partition(":")[0])
    if backend is not None and not any(str(target).startswith(key) for target in backend.targets()):
        known = list(map(str, backend.targets()))
        raise HostFunctionError(
            f"configs of {op.name}: no target starts with {key!r}{did_you_mean(key, known)}",
            location=op.location,
            cure=f"targets are {', '.join(known)}",
        )
    several = config.configs if isinstance(config, Fastest) else (config,)
    for name in dict.fromkeys(name for one in several if isinstance(one, Config) for name in one.kwargs):
        if not parameters.get(name, False):
            raise HostFunctionError(
                f"configs[{key!r}] of {op.name}: no kernel has a constexpr {name!r}",
                location=op.location,
                cure=_constexprs_are(parameters),
            )


def _check_specializations(op: Op, parameters: Mapping[str, bool]) -> None:
    tensors = [argument.name for argument in op.schema.tensors]
    numbers = [name for name, is_constexpr in parameters.items() if not is_constexpr]
    for specialization in op.specialize:
        for name in specialization.tensors or ():
            if name not in tensors:
                raise HostFunctionError(
                    f"specialize of {op.name}: {name!r} is no Tensor argument",
                    location=op.location,
                    cure=f"Tensor arguments are {', '.join(tensors)}",
                )
        for name in (*specialization.ones, *specialization.divisible):
            if name not in numbers:
                raise HostFunctionError(
                    f"specialize of {op.name}: {name!r} is no run-time parameter of a kernel",
                    location=op.location,
                    cure=f"run-time parameters are {', '.join(numbers) or 'none'}",
                )
