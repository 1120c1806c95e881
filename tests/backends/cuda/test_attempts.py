"""In which ways a kernel is compiled until one of them compiles: the attempts are data, one driver goes through them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernelpack.backends.base import Failed
from kernelpack.backends.cuda import CUDABackend
from kernelpack.backends.cuda.context import Attempt, CudaContext
from kernelpack.compiler.stages import run_stages
from kernelpack.errors import BuildError, OutOfResources
from kernelpack.ir.text import parse_module
from kernelpack.options import Options
from kernelpack.target import Target

TARGET = Target.parse("cuda:sm_90a")
MODULE = "tt.func public @kernel() {\n  tt.return\n}"


@pytest.mark.parametrize(
    ("num_stages", "expected"),
    [
        (1, [(1, False), (1, True)]),
        (2, [(2, False), (2, True)]),
        (3, [(3, False), (2, False), (3, True), (2, True)]),
    ],
)
def test_fewer_stages_come_first_then_waits(num_stages: int, expected: list[tuple[int, bool]]) -> None:
    attempts = CUDABackend().attempts(TARGET, Options(num_stages=num_stages))
    assert [(attempt.num_stages, attempt.waits_at_once) for attempt in attempts] == expected


@pytest.mark.parametrize(
    ("stage", "problem", "runs_on", "helps"),
    [
        ("ttgir", OutOfResources("shared memory"), False, {(2, False)}),
        ("ttgir", OutOfResources("shared memory"), True, {(2, False), (3, True), (2, True)}),
        ("cubin", BuildError("serialised"), True, {(3, True), (2, True)}),
        ("cubin", BuildError("no assembler"), False, set()),
    ],
)
def test_what_may_help_after_a_failure(stage: str, problem: Any, runs_on: bool, helps: set[tuple[int, bool]]) -> None:
    backend, options = CUDABackend(), Options(num_stages=3)
    first, *others = backend.attempts(TARGET, options)
    context = CudaContext(TARGET, options, "kernel", first, runs_on=runs_on)
    failed = Failed(stage, problem, context)
    found = {(each.num_stages, each.waits_at_once) for each in others if backend.may_help(each, failed)}
    assert found == helps


def failing(fails: Callable[[Attempt], Exception | None], tried: list[Attempt]) -> Any:
    """Returns the stages of a backend whose one stage fails by the attempt."""

    def stage(value: Any, context: CudaContext) -> bytes:
        assert context.attempt is not None
        tried.append(context.attempt)
        context.runs_on = True
        problem = fails(context.attempt)
        if problem is not None:
            raise problem
        return b"image"

    return lambda *_: {"cubin": stage}


def test_the_first_attempt_that_compiles_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Attempt] = []
    monkeypatch.setattr(
        CUDABackend, "stages", failing(lambda attempt: None if attempt.waits_at_once else BuildError("in order"), tried)
    )
    made = run_stages(parse_module(MODULE), TARGET, Options())
    assert made.value == b"image"
    assert tried == [Attempt(3), Attempt(3, waits_at_once=True)]
    assert made.context.attempt == tried[-1]


def test_the_first_error_is_raised_where_none_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Attempt] = []
    monkeypatch.setattr(CUDABackend, "stages", failing(lambda attempt: BuildError(str(attempt)), tried))
    with pytest.raises(BuildError) as raised:
        run_stages(parse_module(MODULE), TARGET, Options())
    assert raised.value.message == str(Attempt(3))
    assert tried == [Attempt(3), Attempt(3, waits_at_once=True)]


def test_errors_of_the_kernel_are_no_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Attempt] = []
    monkeypatch.setattr(CUDABackend, "stages", failing(lambda attempt: ValueError("a defect"), tried))
    with pytest.raises(ValueError, match="a defect"):
        run_stages(parse_module(MODULE), TARGET, Options())
    assert len(tried) == 1
