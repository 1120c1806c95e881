"""The benchmark of elementary functions: each kernel computes what torch's function of that name does."""

from __future__ import annotations

import pytest

from benchmarks import elementary
from benchmarks.measure import OURS, Case, Stopwatch


@pytest.mark.parametrize(
    "case", [case for case in elementary.cases("cpu", False) if case.threads == 1], ids=lambda case: case.name
)
def test_kernels_compute_what_torch_does(case: Case) -> None:
    Stopwatch(elementary, case).check([OURS, *case.peers])


def test_every_function_is_measured_with_one_thread_and_with_two() -> None:
    names = [case.name for case in elementary.cases("cpu", False)]
    assert sorted(names) == sorted(f"{name} {threads}t" for name in elementary.ARGUMENTS for threads in (1, 2))


def test_gpus_are_refused_by_name() -> None:
    with pytest.raises(SystemExit, match=r"is for CPUs; to fix: --device cpu"):
        elementary.cases("cuda", False)
