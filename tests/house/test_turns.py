"""The tests that take turns are there, and every turn together is all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import CASES_IN_TURN, IN_TURN

TESTS = Path(__file__).parents[1]


def collected(*arguments: str) -> list[str]:
    files = [f"tests/{name}.py" for name in (CASES_IN_TURN[0], IN_TURN[0], IN_TURN[-1], *IN_TURN[5:9])]
    command = [sys.executable, "-m", "pytest", "--collect-only", *files, *arguments]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_the_files_are_there() -> None:
    assert [name for name in (*IN_TURN, *CASES_IN_TURN) if not (TESTS / f"{name}.py").exists()] == []
    assert len(set(IN_TURN)) == len(IN_TURN)


def test_the_shares_are_together_all() -> None:
    shares = [collected("--share", f"{part}/4") for part in (1, 2, 3, 4)]
    assert all(shares)
    assert sorted(case for share in shares for case in share) == sorted(collected())


def test_what_is_no_share_is_refused() -> None:
    """It would leave out every test that takes turns."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "--share", "5/4", "tests/house/test_turns.py"]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True)
    assert done.returncode != 0
    assert "'5/4' is no part of a whole" in done.stderr
