"""Random programs: text round trips, and every pass keeps what a program computes, bit for bit (NaN payloads aside)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from kernelpack.ir.text import parse_module
from kernelpack.ir.verify import verify
from kernelpack.passes import TTIR, canonicalize, cse, dce, licm
from tests.ir.programs import Program, inputs, programs

_BUDGET = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal elements; NaN like NaN, -0 unlike 0."""
    if a.dtype.kind != "f":
        return bool((a == b).all())
    return bool((((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))).all())


@_BUDGET
@given(program=programs())
def test_text_round_trips(program: Program) -> None:
    verify(program.module)
    text = str(program.module)
    again = parse_module(text)
    verify(again)
    assert str(again) == text


@pytest.mark.parametrize("run", [canonicalize, cse, licm, dce], ids=lambda run: run.__name__)
@_BUDGET
@given(program=programs(), values=inputs())
def test_a_pass_keeps_the_meaning(run: object, program: Program, values: dict) -> None:
    expected = program.run(values)
    changed = program.module.clone()
    run(changed)
    verify(changed)
    assert all(map(same, program.run(values, changed), expected)), str(changed)


@pytest.mark.parametrize("examples", [50, pytest.param(500, marks=pytest.mark.slow)])
def test_all_passes_keep_the_meaning(examples: int) -> None:
    settings(_BUDGET, max_examples=examples)(given(program=programs(steps=20), values=inputs())(_all_passes_keep_the_meaning))()


def _all_passes_keep_the_meaning(program: Program, values: dict) -> None:
    expected = program.run(values)
    changed = program.module.clone()
    for step in TTIR.passes():
        step.run(changed, None)
        verify(changed)
    assert all(map(same, program.run(values, changed), expected)), str(changed)
    assert str(parse_module(str(changed))) == str(changed)


@settings(_BUDGET, max_examples=30)
@given(program=programs())
def test_passes_are_deterministic_and_settle(program: Program) -> None:
    parsed = parse_module(str(program.module))  # text remembers %arg7 as a name, which passes then keep: start from it twice
    first, second = parsed.clone(), parse_module(str(parsed))
    for step in TTIR.passes():
        step.run(first, None)
        step.run(second, None)
    assert str(first) == str(second)
    canonicalize(first)
    assert str(first) == str(second)
