"""The kernels of benchmarks.same_source compute what torch computes: compiled for this CPU, at small sizes."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

import pytest

import kernelpack as kp
from benchmarks import same_source
from benchmarks.measure import OURS, Case, Stopwatch
from benchmarks.same_source import cases, load_kernels
from kernelpack.runtime.autotune import Autotuner

pytestmark = pytest.mark.skipif(importlib.util.find_spec("kernelpack._C") is None, reason="kernelpack._C is not built")

CASES = cases("cpu", quick=True)


@pytest.fixture(autouse=True)
def _first_configs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is searched: every kernel runs with the first of its configs."""
    monkeypatch.setenv("KERNELPACK_CACHE_DIR", str(tmp_path))
    for kernel in vars(load_kernels(OURS)).values():
        if isinstance(kernel, Autotuner):
            monkeypatch.setattr(kernel, "configs", kernel.configs[:1])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_results_are_those_of_torch(case: Case) -> None:
    Stopwatch(same_source, case).check([OURS])


def test_every_kernel_is_a_case() -> None:
    kernels = {name for name, value in vars(load_kernels(OURS)).items() if isinstance(value, Autotuner)}
    launched = set()
    for case in CASES:
        problem = same_source.problem_of(case)
        launched |= {launch.kernel for launch in problem.launches(*problem.inputs())}
    assert launched == kernels


def test_kernelpack_stands_in_for_triton_and_leaves_no_trace() -> None:
    import sys

    module = load_kernels(OURS)
    assert module.triton is kp
    assert sys.modules.get("triton") is not kp


def test_a_case_is_compiled_into_caches_of_its_own_that_all_find_later(tmp_path: Path) -> None:
    case = dataclasses.replace(next(case for case in CASES if case.name.startswith("softmax")), peers=())
    (tmp_path / "kept").mkdir()
    seconds = same_source.compile_seconds(case, 1, str(tmp_path / "kept"))
    assert seconds[OURS] > 0
    kept, *own = sorted((tmp_path / "kept").glob("**/kernelpack"), key=lambda folder: len(folder.parts))
    assert len(own) == 1
    files = {path.relative_to(kept) for path in kept.rglob("*") if path.is_file()}
    assert files
    assert files == {path.relative_to(own[0]) for path in own[0].rglob("*") if path.is_file()}
