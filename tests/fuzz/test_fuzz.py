"""No reader fails by an error from inside, whatever it reads; and the harness finds readers that do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.campaign import fuzz
from tests.fuzz.subject import run_one
from tests.fuzz.subjects import NAMES
from tests.fuzz.subjects.planted import SUBJECT as PLANTED
from tests.fuzz.worker import has_atheris, load

_QUICK = ("locks", "schemas", "ttir")
"""Subjects whose seeds are read in no time."""


@pytest.mark.parametrize(
    ("data", "kind"),
    [(b"markK", "KeyError"), (b"markR", "RecursionError"), (b"markLOOP", "TooSlow"), (b"markM", "MemoryError")],
)
def test_a_planted_fault_is_a_finding(data: bytes, kind: str, tmp_path: Path) -> None:
    finding, _ = run_one(PLANTED, data, tmp_path, seconds=0.1)
    assert finding is not None
    assert finding.kind == kind
    assert kind in finding.text


def test_a_refusal_is_none(tmp_path: Path) -> None:
    assert run_one(PLANTED, b"other", tmp_path)[0] is None
    assert run_one(PLANTED, b"mark", tmp_path)[0] is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "atheris", [False, pytest.param(True, marks=pytest.mark.skipif(not has_atheris(), reason="no Atheris"))]
)
def test_planted_faults_are_found_and_kept(atheris: bool, tmp_path: Path) -> None:
    result = fuzz("planted", 12, folder=tmp_path, atheris=atheris)
    found = {path.name.partition("-")[0]: path.read_bytes() for path in result.findings}
    assert {"KeyError", "RecursionError", "MemoryError"} <= set(found), str(result)
    assert "Crash" in found, str(result)  # the worker aborts, and another one goes on
    assert b"K" in found["KeyError"]
    assert result.inputs > 100


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name not in _QUICK else ()) for name in NAMES])
def test_seeds_pass(name: str, tmp_path: Path) -> None:
    subject = load(name)
    seeds = subject.seeds()
    assert seeds
    for data in seeds:
        assert run_one(subject, data, tmp_path, seconds=20)[0] is None


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_nothing_fails_from_inside(name: str, tmp_path: Path) -> None:
    result = fuzz(name, 20, folder=tmp_path)
    assert not result.findings, str(result)
    assert result.inputs > 100
