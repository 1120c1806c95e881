"""Mutated kernels give the same results by the interpreter and by the CPU backend, or both refuse them and name the line."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from kernelpack.errors import CompilationError
from kernelpack.ir.interpret.elementwise import ELEMENTWISE
from tests.mutants import oracle
from tests.mutants.campaign import judge_all
from tests.mutants.mutant import Mutant
from tests.mutants.mutate import KINDS
from tests.mutants.oracle import EQUAL, LONG, MEMORY, REFUSED, UNDEFINED, Finding, judge
from tests.mutants.seeds import SEEDS
from tests.mutants.sources import kernel_module

FEW = 20
BATCH = 50
MANY = range(0, 500, BATCH)


def changed(name: str, old: str = "", new: str = "") -> Mutant:
    """Returns a seed's kernel with a change of its text."""
    seed = next(seed for seed in SEEDS if seed.kernel == name)
    text = kernel_module(seed.file, seed.kernel)
    assert old in text
    return Mutant("changed", 0, seed, (), text, text.replace(old, new) if old else text)


def test_a_few_mutants_agree_or_are_refused(tmp_path: Path) -> None:
    result = judge_all(0, range(FEW), tmp_path)
    assert not result.findings, str(result)


@pytest.mark.slow
@pytest.mark.parametrize("first", MANY)
def test_mutants_agree_or_are_refused(first: int, tmp_path: Path) -> None:
    result = judge_all(0, range(first, first + BATCH), tmp_path)
    print(result)
    assert not result.findings, str(result)
    assert result.share_run >= 0.6, str(result)


def test_a_number_names_one_mutant_and_every_kind_of_change_is_made() -> None:
    kinds: set[str] = set()
    for number in range(100):
        mutant = Mutant.of(0, number)
        assert mutant.after != mutant.before
        assert mutant == Mutant.of(0, number)
        kinds |= set(mutant.kinds)
    assert kinds == set(KINDS)


@pytest.mark.parametrize(
    ("name", "old", "new", "outcome"),
    [
        ("vector_add", "", "", EQUAL),
        ("vector_add", "mask=mask)", "mask=columns)", REFUSED),
        ("vector_add", "offsets, x + y, mask=mask", "offsets * 1000, x + y", MEMORY),
        ("digits", "value * 3", "value * 3\n            while end > begin:\n                value += 1", LONG),
        ("integer_mix", "a // b", "a // (b - b)", UNDEFINED),
        ("custom", "tl.abs(a) > tl.abs(b)", "a % 7 > b % 5", UNDEFINED),
    ],
)
def test_outcomes(name: str, old: str, new: str, outcome: str, tmp_path: Path) -> None:
    assert judge(changed(name, old, new), tmp_path) == outcome


def test_a_wrong_result_is_found(tmp_path: Path) -> None:
    wrong = {"arith.addf": ELEMENTWISE["arith.subf"]}
    with mock.patch.dict(ELEMENTWISE, wrong), pytest.raises(Finding, match=r"out_ptr on .* differ; number"):
        judge(changed("vector_add"), tmp_path)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (AssertionError("inside"), "the backend fails: AssertionError: inside"),
        (CompilationError("too large"), "only the backend refuses: too large"),
    ],
)
def test_a_failure_of_one_side_is_found(problem: Exception, message: str, tmp_path: Path) -> None:
    with mock.patch.object(oracle, "compile_ttir", side_effect=problem), pytest.raises(Finding, match=message):
        judge(changed("vector_add"), tmp_path)


def test_a_refusal_that_names_no_line_is_found(tmp_path: Path) -> None:
    refusal = CompilationError("not here")
    with mock.patch.object(oracle, "ast_to_ttir", side_effect=refusal), pytest.raises(Finding, match="names no line"):
        judge(changed("vector_add"), tmp_path)
