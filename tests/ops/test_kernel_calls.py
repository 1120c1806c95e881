"""The calls that sanitizers run under on a GPU reach every kernel that calls can reach there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelpack.dtypes import DType
from kernelpack.opgen.build import plan_library
from kernelpack.opgen.op import CapturedLaunch, capture
from kernelpack.opgen.tune.race import best_row
from kernelpack.opgen.variants.plan import LaunchPlan, point_of
from kernelpack.simt import Emulator
from kernelpack.target import Target
from tests.gpu.kernel_calls import kernel_calls, reachable_kernels

ROOT = Path(__file__).parents[2]


def test_calls_reach_every_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("randn", "rand"):
        monkeypatch.setattr(torch, name, torch.empty)  # nothing is computed
    plan = plan_library(
        [ROOT / "ops"], namespace="calls", targets=[Target.parse(name) for name in ("cuda:sm_80", "cuda:sm_90a")]
    )
    plans = defaultdict(list)  # a function that is called twice launches twice at its line, for other points
    for op in plan.op_plans:
        for launch in op.launches:
            plans[op.host.name, launch.launch.location.line].append((op, launch))
    reached: dict[Target, set[str]] = {target: set() for target, _ in plan.targets}
    ops = {op.name: op for op in plan.ops}
    for case in kernel_calls():
        args, kwargs = case.arguments()
        with Emulator("cuda:sm_90a"), capture() as made:
            ops[case.op](*args, **kwargs)
        given = dict(zip((argument.name for argument in ops[case.op].schema.arguments), args, strict=False)) | kwargs
        for one in made:
            for op, launch in plans[case.op, one.line]:
                point = point_of(launch.axes, _places(op.space.dtypes, launch, given, one))
                for target, names in reached.items():
                    if launch.points[target][point]:
                        names.add(best_row(launch.points[target][point], one).variant.name)
    for target, names in reached.items():
        assert names == reachable_kernels(plan, target)


def _places(dtypes: Mapping[str, Any], launch: LaunchPlan, given: Mapping[str, Any], made: CapturedLaunch) -> list[int]:
    """Returns a call's entry of each axis of a launch's table."""

    def has(value: torch.Tensor | None, entry: Any) -> bool:
        if value is None or entry is None:
            return value is entry
        return value.dtype == (getattr(torch, entry.name) if isinstance(entry, DType) else given[entry.argument].dtype)

    return [
        axis.values.index(made.arguments[axis.name])
        if axis.values
        else next(i for i, entry in enumerate(dtypes[axis.name]) if has(given.get(axis.name), entry))
        for axis in launch.axes
    ]
