"""Leaves out of a library what recorded calls do not need: `kernelpack build --trace FILE`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kernelpack.errors import BuildError
from kernelpack.opgen.trace import Trace
from kernelpack.opgen.variants.plan import KernelVariant, LaunchPlan, OpPlan
from kernelpack.target import Target

Needed = frozenset[tuple[str, str]]
"""Variants by backend and name. Each level of a CPU, and each GPU, needs the same ones."""


def needed_variants(trace: Trace, targets: Collection[Target]) -> Needed:
    """Returns the variants that a trace's calls ran. Raises BuildError where they ran on none of a target's backend."""
    found = frozenset((Target.parse(variant.target).backend, variant.name) for variant in trace.variants)
    ran = {backend for backend, _ in found}
    for target in targets:
        if target.backend not in ran:
            raise BuildError(
                f"the trace has no launch for {target.backend}, only for {', '.join(sorted(ran)) or 'nothing'}: nothing would be "
                f"built for {target}",
                cure="record calls on such a device, too, or leave the target out",
            )
    return found


def is_needed(variant: KernelVariant, needed: Needed) -> bool:
    """Whether a variant is one of those that are needed."""
    return (variant.target.backend, variant.name) in needed


def only(plan: OpPlan, needed: Needed) -> OpPlan:
    """Returns the plan of an op with the variants that are needed alone."""
    return replace(plan, launches=tuple(_only(launch, needed) for launch in plan.launches))


def _only(launch: LaunchPlan, needed: Needed) -> LaunchPlan:
    points = {
        target: [[row for row in point if is_needed(row.variant, needed)] for point in points]
        for target, points in launch.points.items()
    }
    return replace(launch, points=points)
