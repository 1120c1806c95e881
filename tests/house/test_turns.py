"""The tests that take turns are there, and every turn together is all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import CASES_IN_TURN, IN_TURN

TESTS = Path(__file__).parents[1]


def collected(*shares: str) -> list[list[str]]:
    """Returns what each share has, and at last what there is. One process collects all: it imports torch and the tests once."""
    files = [f"tests/{name}.py" for name in (CASES_IN_TURN[0], IN_TURN[0], IN_TURN[-1], *IN_TURN[5:9])]
    calls = [["--collect-only", *files, *(("--share", share) if share else ())] for share in (*shares, "")]
    code = f"import pytest\nfor call in {calls!r}:\n    pytest.main(call)\n    print('== end')"
    done = subprocess.run([sys.executable, "-c", code], cwd=TESTS.parent, capture_output=True, text=True)
    *parts, rest = done.stdout.split("== end\n")
    assert rest == "", done.stderr
    return [[line for line in part.splitlines() if "::" in line] for part in parts]


def test_the_files_are_there() -> None:
    assert [name for name in (*IN_TURN, *CASES_IN_TURN) if not (TESTS / f"{name}.py").exists()] == []
    assert len(set(IN_TURN)) == len(IN_TURN)


def test_the_shares_are_together_all() -> None:
    *shares, whole = collected(*(f"{part}/6" for part in range(1, 7)))
    assert len(shares) == 6
    assert all(shares)
    assert sorted(case for share in shares for case in share) == sorted(whole)


def test_what_is_no_share_is_refused() -> None:
    """It would leave out every test that takes turns."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "--share", "7/6", "tests/house/test_turns.py"]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True)
    assert done.returncode != 0
    assert "'7/6' is no part of a whole" in done.stderr
