"""Binds a kernel's parameters for one variant: types from dtypes and annotations, constexprs from host function and config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelpack.backends.base import Options
from kernelpack.errors import HostFunctionError
from kernelpack.frontend.jit import KernelParam
from kernelpack.opgen.config import Config, Fastest, VariantPoint, config_for, options_of
from kernelpack.opgen.host_ir import BOOL, FLOAT, INT, Expr, Launch
from kernelpack.opgen.host_static import UNKNOWN, ReachedLaunch, TensorFact, is_tensor_like
from kernelpack.opgen.kernels import kernel_parameters, number_type
from kernelpack.opgen.op import Op


@dataclass(frozen=True)
class Bound:
    """What a variant's kernel is compiled with: the types of its run-time parameters, its constexprs, both in order, its options."""

    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    options: Options


@dataclass(frozen=True)
class Binding:
    """What binds a kernel at a point: what the host function passes, and one config, or several to choose from."""

    op: Op
    launch: Launch
    point: VariantPoint
    signature: Mapping[str, str]
    passed: Mapping[str, Any]
    found: Config | Fastest

    @property
    def fastest(self) -> Fastest | None:
        return self.found if isinstance(self.found, Fastest) else None

    def config(self, number: int) -> Config:
        """Returns config `number` of several, or the only one."""
        return self.found.configs[number] if isinstance(self.found, Fastest) else self.found

    def bound(self, number: int) -> Bound:
        """Returns the point bound to a config. Raises HostFunctionError for a constexpr that nothing binds."""
        config, launch = self.config(number), self.launch
        constexprs: dict[str, Any] = {}
        for parameter in kernel_parameters(launch.kernel):
            name = parameter.name
            if name in self.signature:
                continue
            if name in self.passed:
                constexprs[name] = self.passed[name]
            elif name in config.kwargs:
                constexprs[name] = config.kwargs[name]
            elif parameter.has_default:
                constexprs[name] = parameter.default
            else:
                target, given = self.point.target, ", ".join(self.op.configs) or "none"
                raise HostFunctionError(
                    f"nothing binds constexpr {name!r} of {launch.kernel_name} for {target} (configs: {given})",
                    location=launch.location,
                    cure=f'pass it in the launch, or write configs={{"{target.backend}": kp.Config({{"{name}": ...}})}}',
                )
        for name in launch.meta_names:
            if not isinstance(constexprs.get(name), int):
                raise HostFunctionError(
                    f'the grid asks for meta["{name}"], which is no integer constexpr of {launch.kernel_name}',
                    location=launch.location,
                )
        return Bound(self.signature, constexprs, options_of(config, launch.options))


def bind(op: Op, reached: ReachedLaunch, chosen: Mapping[str, Any], point: VariantPoint) -> Binding | None:
    """Returns what binds the kernel of a launch at a point; None where the author's function declines to build it.

    `chosen` are the constexprs that are axes. Raises HostFunctionError for what nothing decides when building.
    """
    launch, parameters = reached.launch, kernel_parameters(reached.launch.kernel)
    signature = _signature(reached, parameters)
    passed: dict[str, Any] = {}
    for parameter in parameters:
        name = parameter.name
        if name in chosen:
            passed[name] = chosen[name]
        elif name in launch.arguments and name not in signature:
            passed[name] = _constant(reached, name)
    found = launch.fastest or config_for(op.configs, replace(point, known={**point.known, **passed}))
    return None if found is None else Binding(op, launch, point, signature, passed, found)


def number_kind(parameter: KernelParam, value: Expr) -> str:
    """Returns the type in a signature of a parameter that a host function passes a number."""
    return number_type(parameter, {INT: "i32", FLOAT: "fp32", BOOL: "i1"}[value.type])


def _signature(reached: ReachedLaunch, parameters: Sequence[KernelParam]) -> dict[str, str]:
    """Returns the types of the run-time parameters; tensors that are absent have none."""
    signature: dict[str, str] = {}
    for parameter in parameters:
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
            signature[parameter.name] = number_kind(parameter, value)
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
    parameters = {p.name: p.is_constexpr for launch in op.host.launches for p in kernel_parameters(launch.kernel)}
    passed = {name for launch in op.host.launches for name in launch.arguments}
    constexprs = sorted(name for name, is_constexpr in parameters.items() if is_constexpr)
    for name in op.space.constexprs:
        if not parameters.get(name, False):
            raise HostFunctionError(
                f"variants of {op.name}: {name!r} is neither a Tensor argument nor a constexpr parameter of a kernel",
                location=op.location,
                cure=f"constexpr parameters are {', '.join(constexprs) or 'none'}",
            )
        if name not in passed:
            raise HostFunctionError(
                f"variants of {op.name}: no launch passes {name!r}, so a call could not choose its value",
                location=op.location,
                cure=f"pass {name}=... in the launch, or bind it in configs",
            )
    for key, config in op.configs.items():
        several = config.configs if isinstance(config, Fastest) else (config,)
        for name in dict.fromkeys(name for one in several if isinstance(one, Config) for name in one.kwargs):
            if not parameters.get(name, False):
                raise HostFunctionError(
                    f"configs[{key!r}] of {op.name}: no kernel has a constexpr {name!r}",
                    location=op.location,
                    cure=f"constexpr parameters are {', '.join(constexprs) or 'none'}",
                )
    tensors = {argument.name for argument in op.schema.tensors}
    for specialization in op.specialize:
        for name in specialization.tensors or ():
            if name not in tensors:
                raise HostFunctionError(f"specialize of {op.name}: {name!r} is no Tensor argument", location=op.location)
        for name in (*specialization.ones, *specialization.divisible):
            if parameters.get(name, True):
                raise HostFunctionError(
                    f"specialize of {op.name}: {name!r} is no run-time parameter of a kernel", location=op.location
                )
