"""Each pass that `kernelpack opt --list` names has a test that is text alone, in tests/passes/data, or a reason not to have one."""

from __future__ import annotations

import json

import pytest

from kernelpack.backends.installed import backends
from kernelpack.cli import main
from tests.passes.texts import texts

WITHOUT = {
    "late_canonicalize": "canonicalize, once more",
    "late_cse": "cse, once more",
    "late_clean": "clean, once more",
    "look_at_kernel": "it changes nothing: it checks roles, and notes what the author wrote",
    "schedule": "it changes nothing: it decides; kernelpack inspect --stage schedule shows what",
}
"""Passes without a file, and why."""


def passes(capsys: pytest.CaptureFixture[str]) -> set[str]:
    """Returns the names of all passes of all backends."""
    names: set[str] = set()
    for backend in backends().values():
        assert main(["opt", "--list", "--json", "--target", str(backend.targets()[-1])]) == 0
        names |= {name for pipeline in json.loads(capsys.readouterr().out).values() for name in pipeline}
    return names


def test_each_pass_has_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    known, tested = passes(capsys), {text.tested for text in texts()}
    assert len(known) > 25
    assert known - tested - set(WITHOUT) == set(), "to fix: write tests/passes/data/PASS.ttir (docs/write-a-pass.md)"


def test_exceptions_that_nobody_needs_are_gone(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(WITHOUT) <= passes(capsys)
    assert set(WITHOUT) & {text.tested for text in texts()} == set()
