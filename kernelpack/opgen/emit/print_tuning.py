"""Prints the decisions of `kernelpack tune` as C++: which config of a launch a call gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kernelpack.backends.base import Backend
from kernelpack.opgen.emit.print_cpp import braces
from kernelpack.opgen.variants.decisions import Decision
from kernelpack.opgen.variants.plan import LaunchPlan
from kernelpack.target import Target


def tuning_tables(plan: LaunchPlan, backends: Sequence[Backend], targets: Mapping[str, Sequence[Target]]) -> list[str]:
    """Returns the tables of a launch (csrc/ops/tuned.h) as lines; none where nothing is to choose."""
    if plan.key is None:
        return []
    number = plan.launch.index
    names: dict[Decision, str] = {}
    lines: list[str] = []
    by_backend: list[str] = []
    count = len(next(iter(plan.points.values()))) // plan.config_count
    for backend in backends:
        by_target: list[str] = []
        for target in targets[backend.name]:
            points: list[str] = []
            for point in range(count):
                decision = plan.decisions.get(target, {}).get(point)
                if decision is None:
                    points.append("nullptr")
                    continue
                if decision not in names:
                    names[decision] = f"kTuned{number}_{len(names)}"
                    lines += _decision(names[decision], decision)
                points.append(f"&{names[decision]}")
            by_target.append(f"kTuned{number}_{target.slug}")
            lines.append(f"const kp::TunedPoint* const {by_target[-1]}[] = {braces(points)};")
        by_backend.append(f"kTuned{number}_{backend.name}")
        lines.append(f"const kp::TunedPoint* const* const {by_backend[-1]}[] = {{{', '.join(by_target)}}};")
    return [
        f"// Configs by {', '.join(plan.key)}.",
        *lines,
        f"const kp::TunedPoint* const* const* const kTunedBackends{number}[] = {{{', '.join(by_backend)}}};",
        f"const kp::Tuning kTuning{number} = {{kTunedBackends{number}}};",
    ]


def _decision(name: str, decision: Decision) -> list[str]:
    return [
        f"const int64_t {name}Bounds[] = {{{_numbers(bound for bounds in decision.bounds for bound in bounds)}}};",
        f"const uint8_t {name}Counts[] = {{{_numbers(len(bounds) for bounds in decision.bounds)}}};",
        f"const uint8_t {name}Choices[] = {{{_numbers(decision.choices)}}};",
        f"const uint8_t {name}Configs[] = {{{_numbers(decision.configs)}}};",
        f"const kp::TunedPoint {name} = {{{name}Bounds, {name}Counts, {name}Choices, {name}Configs, {len(decision.configs)}}};",
    ]


def _numbers(values: Iterable[int]) -> str:
    return ", ".join(map(str, values)) or "0"
